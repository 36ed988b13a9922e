"""The harness: a plain and another process side by side on one core.

On a shared machine, two equal runs one after the other differ by 20 % and more. Two runs on one core take turns every
few milliseconds, so what disturbs one disturbs the other, and the ratio of their CPU times holds. A figure is the median
of the ratios of such pairs. A pair of two plain runs is the control: it shows the error.

``measure`` compares whole processes, from their start to their end. ``measure_inside`` compares runs inside of two
processes that go on: for PyPy, whose compiler needs some seconds first.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.interpreters import Interpreter, own
from evaluation.spread import Spread

HERE = Path(__file__).resolve().parent
PLAIN = "plain"
# The largest number of bytes that live beside a run inside of a process. Each setting of a round has another number,
# because a few KiB change the times of major collections, which makes gcbench up to 4 % faster or slower. Both runs of a
# pair have the same number.
BALLAST = 8 << 20
# Seconds until a command is ended that does not end by itself.
LIMIT = 1800


class Failed(Exception):
    """A command failed, or did not end. The text has the end of what it printed."""


@dataclass(frozen=True)
class Command:
    """A command to measure."""

    words: Sequence[str]
    folder: Path
    environment: Mapping[str, str] | None = None
    """Variables beyond this process's."""


def run_together(commands: Sequence[Command], at: Interpreter | None = None) -> list[dict[str, float]]:
    """Runs commands at the same time on one core, where an interpreter lives, and returns what each used: ``cpu`` and
    ``system`` in seconds, ``rss`` in bytes, ``faults``."""
    with tempfile.TemporaryDirectory() as folder:
        return _run_together(commands, at or own(), Path(folder))


def _run_together(commands: Sequence[Command], place: Interpreter, folder: Path) -> list[dict[str, float]]:
    outputs = [folder / f"output-{number}" for number in range(len(commands))]
    asked = [
        {
            "words": [str(word) for word in command.words],
            "environment": {**place.environment(), **(command.environment or {})},
            "folder": str(command.folder),
            "output": str(output),
        }
        for command, output in zip(commands, outputs)
    ]
    # Outside of another Debian, this Python starts the commands of all interpreters.
    here = [sys.executable, "-S", str(HERE / "pair.py")]
    process = subprocess.Popen(
        here if place.tree is None else place.words([str(HERE / "pair.py")], commands[0].folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_stay_on_one_core,
    )
    try:
        found, _ = process.communicate(json.dumps(asked), timeout=LIMIT)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            raise Failed(f"no end after {LIMIT} s: {asked[-1]['words']}") from None
        raise
    if process.returncode:
        raise Failed(f"failed: {process.args!r}")
    used: list[dict[str, float]] = json.loads(found)
    for each, ask, output in zip(used, asked, outputs):
        if each.pop("status"):
            raise Failed(f"failed: {ask['words']}\n{output.read_text(errors='replace')[-1500:]}")
    return used


def printed(command: Command, at: Interpreter | None = None) -> Any:
    """Runs a command that measures by itself, where an interpreter lives, and returns the JSON that it prints."""
    place = at or own()
    words = [str(word) for word in command.words]
    words = words if place.tree is None else place.words(words[1:], command.folder)
    done = subprocess.run(
        words,
        cwd=command.folder,
        env={**place.environment(), **(command.environment or {})},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    if done.returncode:
        raise Failed(f"failed: {words}\n{done.stderr[-1500:]}")
    return json.loads(done.stdout)


def measure(
    plain: Command,
    variants: Mapping[str, Command],
    rounds: int,
    at: Interpreter | None = None,
    warm: bool = True,
) -> list[dict[str, Any]]:
    """Measures variants of a command in pairs. Returns for each pair ``variant``, ``plain`` and ``other``.

    Before, a pair compiles modules and fills disk caches, if ``warm``."""
    pairs = []
    if warm:
        run_together([plain, next(iter(variants.values()))], at)
    for turn in range(rounds):
        for variant, command in variants.items():
            # Each of the two is started first in half of the rounds.
            order = 1 if turn % 2 else -1
            one, other = run_together([plain, command][::order], at)[::order]
            pairs.append({"variant": variant, "plain": one, "other": other})
    return pairs


def measure_inside(
    at: Interpreter,
    program: str,
    settings: Sequence[Any],
    rounds: int,
    flags: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    quick: bool = False,
) -> list[dict[str, Any]]:
    """Measures settings of ``nthbyte.start`` in two processes that go on; ``None`` is a plain run. Returns for each pair
    ``variant``, ``plain`` and ``other``.

    Two equal processes differ by up to 2 %, because of memory addresses and the order of JIT compilation. So each is the
    plain one in half of the pairs, and each round has new processes. If ``quick``, runs have a tenth of the work, with no
    warm-up."""
    pairs = []
    extent = ["0.1", "0"] if quick else []
    for _ in range(rounds):
        processes = [_inside(at, [program, *extent], flags, environment or {}) for _ in range(2)]
        for setting in settings:
            ballast = random.randrange(BALLAST)
            for order in (processes, processes[::-1]):
                for process, what in zip(order, (setting, None)):
                    assert process.stdin
                    process.stdin.write(json.dumps({"setting": what, "ballast": ballast}) + "\n")
                    process.stdin.flush()
                other, plain = (_answer(process) for process in order)
                pairs.append({"variant": setting, "plain": plain, "other": other})
        for process in processes:
            process.communicate()
    return pairs


def _inside(
    at: Interpreter, words: Sequence[str], flags: Sequence[str], environment: Mapping[str, str]
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        at.words([*flags, str(HERE / "inside.py"), *words], HERE),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**at.environment(), **environment},
        preexec_fn=_stay_on_one_core,
    )


def _stay_on_one_core() -> None:
    """Called in a new process, which passes it on to those that it starts. PyPy 7.3.19 cannot do it by itself."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def _answer(process: subprocess.Popen[str]) -> Any:
    assert process.stdout and process.stderr
    line = process.stdout.readline()
    if not line:
        raise Failed(process.stderr.read()[-1500:])
    return json.loads(line)


def of(pairs: Iterable[Mapping[str, Any]], variant: Any) -> list[Mapping[str, Any]]:
    """The pairs of a variant."""
    return [pair for pair in pairs if pair["variant"] == variant]


def ratio(pairs: Iterable[Mapping[str, Any]], variant: Any, what: str = "cpu") -> Spread:
    """The ratio of a variant to the plain run beside it."""
    return Spread.of([pair["other"][what] / pair["plain"][what] for pair in of(pairs, variant)])


def rss(pairs: Iterable[Mapping[str, Any]], variant: Any) -> float:
    """The smallest peak of a variant, divided by the smallest peak of the plain runs beside it."""
    those = of(pairs, variant)
    peak: float = min(pair["other"]["rss"] for pair in those) / min(pair["plain"]["rss"] for pair in those)
    return peak


def plain(pairs: Iterable[Mapping[str, Any]], what: str = "cpu") -> Spread:
    """What the plain runs used."""
    return Spread.of([pair["plain"][what] for pair in pairs])
