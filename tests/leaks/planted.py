"""Programs with known leaks, and without: what ``nthbyte leaks`` says of each.

``python tests/leaks/planted.py`` runs each many times, with other sample points every time, and
writes the table in docs/leaks.md. The tests run each once.

A line that may be named ends in ``# LEAK``: one that allocates what is kept, or that keeps it.
Lengths of runs are numbers of requests, and the verdict rests on the number of samples, so that
neither depends on how fast the machine is.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import harness

PROGRAMS = Path(__file__).parent / "programs"
PERIOD = "16KiB"
SEED = 7
ATTEMPTS = 3

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Outcome:
    """What was said of one run of a program."""

    accused: list[tuple[str, int]]
    """Files and lines that are said to leak: of each finding the place, its lines and its parts."""
    undecided: bool
    """Whether there was not enough data for something."""
    right: bool
    """Whether the largest finding has a planted line, or there is neither a finding nor a leak."""
    beside: int
    """Findings without a planted line."""
    report: Any


def names() -> list[str]:
    """Returns the programs' names."""
    return sorted(path.stem for path in PROGRAMS.glob("*.py"))


def planted(name: str) -> set[int]:
    """Returns the lines of a program that may be named."""
    lines = (PROGRAMS / f"{name}.py").read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# LEAK")}


def judge(
    name: str,
    folder: Path,
    seed: int,
    interpreter: harness.Interpreter | None = None,
    command: Path = harness.COMMAND,
    period: str = PERIOD,
) -> Outcome:
    """Profiles a program once and asks what leaks."""
    interpreter = interpreter or harness.cpythons()[0]
    path = PROGRAMS / f"{name}.py"
    out = folder / f"{name}.{seed}.nthb"
    # A period that follows the program excludes a seed.
    chance = [] if period == "auto" else ["--seed", str(seed)]
    words = ["run", "-q", "--every", period, *chance, "-o", out, path, str(seed)]
    interpreter.nthbyte(*words, folder=folder).ok()
    profiles = sorted(folder.glob(f"{name}.{seed}*.nthb"))
    done = harness.run([str(command), "leaks", "--json", "--fail", *map(str, profiles)], folder)
    assert done.status in (0, 1), done.err
    report = json.loads(done.out)
    assert done.status == int(report["leaks"])
    findings = [finding for profile in report["profiles"] for finding in profile["findings"]]
    findings.sort(key=lambda finding: -finding["held"]["estimate"])
    accused = []
    lines = planted(name)
    right = not lines and not findings
    beside = 0
    for number, finding in enumerate(findings):
        places = [finding["place"], *(line["what"] for line in finding["lines"])]
        places += [part["place"] for part in finding["parts"]]
        accused += [(place["file"], place["line"]) for place in places]
        names_it = any(place["line"] in lines and Path(place["file"]).name == path.name for place in places)
        right |= number == 0 and names_it
        beside += not names_it
    for profile in profiles:
        profile.unlink()
    return Outcome(
        accused, any(profile["undecided"] for profile in report["profiles"]), right, beside, report
    )


def profile(name: str, folder: Path, seed: int, period: str) -> Path:
    """Profiles a program once, as ``app.nthb`` in a new folder, and returns that folder."""
    new = folder / str(seed)
    new.mkdir()
    words = ["run", "-q", "--every", period, "--seed", str(seed), "-o", "app.nthb"]
    harness.cpythons()[0].nthbyte(*words, PROGRAMS / f"{name}.py", folder=new).ok()
    return new


def first_right(ask: Callable[[int], Answer], is_right: Callable[[Answer], bool]) -> Answer:
    """Returns the first right answer about three runs with these seeds, or the last answer.

    A verdict is about time: a program that gets less of the processor half way may look as if it
    levelled off.
    """
    for seed in range(SEED, SEED + ATTEMPTS):
        answer = ask(seed)
        if is_right(answer):
            break
    return answer


def main() -> None:
    """Makes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--command", type=Path, default=harness.COMMAND)
    parser.add_argument("--write", type=Path, help="the page into which the table goes")
    parser.add_argument("--period", default=PERIOD)
    parser.add_argument("programs", nargs="*")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.programs or names():
            seeds = range(options.first, options.first + options.runs)
            outcomes = [
                judge(name, Path(folder), seed, command=options.command, period=options.period)
                for seed in seeds
            ]
            accused = sum(bool(outcome.accused) for outcome in outcomes)
            right = sum(outcome.right for outcome in outcomes)
            undecided = sum(outcome.undecided and not outcome.accused for outcome in outcomes)
            beside = sum(outcome.beside for outcome in outcomes)
            kind, title = name.split("_", 1)
            rows.append((kind, title.replace("_", " "), len(outcomes), accused, right, beside, undecided))
            print(*rows[-1], flush=True)
            for outcome in outcomes:
                if not outcome.right or outcome.beside:
                    print(
                        "   ", sorted({(Path(file).name, line) for file, line in outcome.accused}), flush=True
                    )
    if options.write:
        _write(options.write, rows)


def _write(page: Path, rows: list[tuple[str, str, int, int, int, int, int]]) -> None:
    start, end = "<!-- table -->\n", "<!-- end of table -->"
    table = [
        "| program | runs | accused | rightly | other findings | not enough data |",
        "|---|---|---|---|---|---|",
    ]
    for kind, title, runs, accused, right, beside, undecided in rows:
        rightly = str(right) if kind == "leak" else ""
        table.append(f"| {kind}: {title} | {runs} | {accused} | {rightly} | {beside} | {undecided} |")
    text = page.read_text()
    before, rest = text.split(start, 1)
    after = rest.split(end, 1)[1]
    page.write_text(before + start + "\n".join(table) + "\n" + end + after)


if __name__ == "__main__":
    main()
