"""Runs ``program.py`` under nthbyte again and again, each time with other features, and checks what it leaves.

Usage: soak.py --seed 1 --minutes 60 [--only cpython-3.11] [--steps 150]
       soak.py --seed 1 --round 17 --only cpython-3.11     repeats one round

A round is determined by the seed, its number, and the number of steps: which features the program has, how it is
profiled, and the actions of each of its threads. A round succeeds if the program ends as it should, in time, and every
profile that it leaves can be read. A round that fails is run again without nthbyte, to tell whose fault it is.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import harness

PROGRAM = Path(__file__).resolve().with_name("program.py")
FEATURES = ["forks", "interpreters", "closes", "memory", "disk", "sessions"]
# PyPy has no interpreters of this kind, and ends a program that is out of memory.
NOT_ON_PYPY = {"interpreters", "memory"}
# Features that may take the profile's file, or the memory for it.
HOSTILE = {"closes", "memory", "disk"}
# Only for programs that hang; the machine may be slow.
LONGEST = 900.0


@dataclass(frozen=True)
class Round:
    """One run of the program."""

    seed: int
    steps: int
    features: tuple[str, ...]
    options: tuple[str, ...] | None
    """The options of ``nthbyte run``; None if the program starts its sessions itself."""

    def words(self, folder: Path, *more: str) -> list[str]:
        """The program's arguments."""
        return [str(self.seed), str(self.steps), str(folder), *self.features, *more]


def make_round(seed: int, number: int, steps: int, is_pypy: bool) -> Round:
    """Returns the round of this number."""
    chance = random.Random(f"{seed}-{number}")
    features = [name for name in FEATURES if chance.random() < 0.5]
    options = None
    if chance.random() < 0.3:
        options = ("--every", chance.choice(["1", "512", "4KiB", "32KiB"]), "--seed", str(number))
        if is_pypy and chance.random() < 0.5:
            options = (*options, "--cpu", "1000")
    if is_pypy:
        features = [name for name in features if name not in NOT_ON_PYPY]
    return Round(chance.randrange(1 << 30), steps, tuple(features), options)


def run(one: Round, interpreter: harness.Interpreter, folder: Path, longest: float = LONGEST) -> list[str]:
    """Runs a round in an empty folder; returns the faults."""
    flags = ("-W", "ignore::DeprecationWarning")
    try:
        if one.options is None:
            done = interpreter.python(*flags, PROGRAM, *one.words(folder), folder=folder, timeout=longest)
        else:
            words = ("run", "-q", "-o", folder / "run.nthb", *one.options, PROGRAM, *one.words(folder, "run"))
            done = interpreter.nthbyte(*words, flags=flags, folder=folder, timeout=longest)
    except AssertionError as error:
        return [str(error)]
    wrong = []
    if done.status != 0 or not done.out.endswith("fine\n"):
        wrong.append(f"exit status {done.status}\n{done.out[-500:]}\n{done.err[-3000:]}")
    if "panicked" in done.err:
        wrong.append(f"a panic: {done.err[-3000:]}")
    return wrong + wrong_profiles(one, folder)


def wrong_profiles(one: Round, folder: Path) -> list[str]:
    """Returns the faults of the profiles of a round that has ended."""
    wrong = []
    for profile in sorted(folder.glob("*.nthb")):
        # A child that is killed, or a full disk, may leave a file that has no data yet.
        report = harness.report("summary", "--json", profile, folder=folder)
        if report.status not in (0, 1) or "panicked" in report.err:
            wrong.append(f"{profile.name}: status {report.status}: {report.err}")
        if HOSTILE & set(one.features) or len(profile.suffixes) > 1:
            continue
        if report.status != 0 or not json.loads(report.out)["complete"]:
            wrong.append(f"{profile.name} is not complete: {report.out[:300]} {report.err}")
    return wrong


def fails_without(one: Round, interpreter: harness.Interpreter, folder: Path) -> bool:
    """Whether the program fails without nthbyte, too."""
    words = ("-W", "ignore::DeprecationWarning", PROGRAM, *one.words(folder, "plain"))
    try:
        return interpreter.python(*words, folder=folder, timeout=LONGEST).status != 0
    except AssertionError:
        return True


def main() -> int:
    """Runs rounds until the time is over; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--steps", type=int, default=150, help="actions of each thread in a round")
    parser.add_argument("--round", type=int, help="run this round only")
    parser.add_argument("--only", default="", help="interpreters whose names contain this")
    arguments = parser.parse_args()
    interpreters = [one for one in harness.interpreters() if arguments.only in str(one)]
    if not interpreters:
        print(f"soak: no interpreter is called {arguments.only}", file=sys.stderr)
        return 2
    end = time.monotonic() + 60 * arguments.minutes
    numbers = itertools.count() if arguments.round is None else [arguments.round]
    failures = rounds = 0
    for number in numbers:
        if number != arguments.round and time.monotonic() >= end:
            break
        for interpreter in interpreters:
            one = make_round(arguments.seed, number, arguments.steps, interpreter.is_pypy)
            folder = Path(tempfile.mkdtemp(prefix="nthbyte-soak-"))
            rounds += 1
            wrong = run(one, interpreter, folder)
            shutil.rmtree(folder, ignore_errors=True)
            if wrong:
                folder.mkdir()
                own = fails_without(one, interpreter, folder)
                shutil.rmtree(folder, ignore_errors=True)
                failures += not own
                whose = "also without nthbyte" if own else "FAILED"
                print(f"{interpreter} round {number}: {whose}: {one}", *wrong, sep="\n", flush=True)
            else:
                print(f"{interpreter} round {number}: fine: {one}", flush=True)
    print(f"{rounds} rounds with seed {arguments.seed}, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
