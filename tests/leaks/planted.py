"""Programs with known leaks, and without: what ``nthbyte leaks`` says of each.

``python tests/leaks/planted.py`` runs each several times, at the default period, and writes the table in
docs/leaks.md. There are three kinds: services that leak, clean services, and jobs of one pass (``batch``), which
grow while they build a result.

A line that may be named ends in ``# LEAK``: one that allocates kept objects, or that keeps them. Services take a
minute, and wait for most of it, so many run at once. NTHBYTE_TEST_SECONDS is another length; with 0 they do not wait,
and a verdict needs ``--repeated``. Jobs take as long as they take. What they import is in ``requirements.txt``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import harness

PROGRAMS = Path(__file__).parent / "programs"
PACKAGES = harness.REPOSITORY / "build" / "leaks" / "bin" / "python"
SEED = 7
ATTEMPTS = 3

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Outcome:
    """What was said of one run of a program."""

    accused: list[tuple[str, int]]
    """Files and lines that are said to leak: of each finding the place, its lines and its parts."""
    undecided: bool
    """Whether something grew, or may have grown, that is not called a leak."""
    right: bool
    """Whether the largest finding has a planted line, or there is neither a finding nor a leak."""
    beside: int
    """Findings without a planted line."""
    report: Any


def names(*kinds: str) -> list[str]:
    """Returns the names of the programs of these kinds; of all, if none is given."""
    paths = sorted(PROGRAMS.glob("*_*.py"))
    return [path.stem for path in paths if not kinds or path.stem.startswith(kinds)]


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
    period: str = "auto",
    seconds: float = 60,
) -> Outcome:
    """Profiles a program once, in a folder of its own, and asks what leaks.

    A profile that is there already is asked. Without waiting, that the work is repeated has to be said.
    """
    interpreter = interpreter or harness.cpythons()[0]
    path = PROGRAMS / f"{name}.py"
    folder = folder / f"{name}.{seed}"
    if not (folder / "done").exists():
        folder.mkdir(exist_ok=True)
        # A period that follows the program excludes a seed.
        chance = [] if period == "auto" else ["--seed", str(seed)]
        words = ["run", "-q", "--every", period, *chance, "-o", "app.nthb", path, str(seed)]
        environment = {"NTHBYTE_TEST_SECONDS": str(seconds)}
        interpreter.nthbyte(*words, folder=folder, environment=environment).ok()
        (folder / "done").touch()
    profiles = sorted(folder.glob("*.nthb"))
    options = ["--repeated"] if seconds == 0 else []
    done = harness.run([str(command), "leaks", "--json", "--fail", *options, *map(str, profiles)], folder)
    assert done.status in (0, 1), done.err
    report = json.loads(done.out)
    assert done.status == int(report["leaks"])
    findings = [finding for profile in report["profiles"] for finding in profile["findings"]]
    findings.sort(key=lambda finding: -finding["grown"]["estimate"])
    accused = []
    lines = planted(name)
    right = not lines and not findings
    beside = 0
    for number, finding in enumerate(findings):
        places = [finding["place"], *(line["what"] for line in finding["lines"])]
        places += [part["place"] for part in finding["parts"]]
        accused += [(place["file"], place["line"]) for place in places]
        # The numbers of requests are made in pacing.py, and kept by the program.
        pacing = any(Path(place["file"]).name == "pacing.py" for place in places)
        names_it = any(place["line"] in lines and Path(place["file"]).name == path.name for place in places)
        right |= number == 0 and names_it
        beside += not (names_it or pacing)
    return Outcome(
        accused, any(profile["undecided"] for profile in report["profiles"]), right, beside, report
    )


def profile(name: str, folder: Path, seed: int, period: str) -> Path:
    """Profiles a program once, without waiting, as ``app.nthb`` in a new folder, and returns that folder."""
    new = folder / str(seed)
    new.mkdir()
    words = ["run", "-q", "--every", period, "--seed", str(seed), "-o", "app.nthb"]
    environment = {"NTHBYTE_TEST_SECONDS": "0"}
    program = PROGRAMS / f"{name}.py"
    harness.cpythons()[0].nthbyte(*words, program, folder=new, environment=environment).ok()
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


Row = tuple[str, str, int, int, int, int, int]


def _row(name: str, outcomes: list[Outcome]) -> Row:
    kind, title = name.split("_", 1)
    for outcome in outcomes:
        if not outcome.right or outcome.beside:
            places = sorted({(Path(file).name, line) for file, line in outcome.accused})
            print("   ", name, places, flush=True)
    accused = sum(bool(outcome.accused) for outcome in outcomes)
    right = sum(outcome.right for outcome in outcomes)
    undecided = sum(outcome.undecided and not outcome.accused for outcome in outcomes)
    beside = sum(outcome.beside for outcome in outcomes)
    return kind, title.replace("_", " "), len(outcomes), accused, right, beside, undecided


def _rows(names: Iterable[str], options: argparse.Namespace, folder: Path, at_once: int) -> Iterable[Row]:
    """Runs programs, so many at once."""
    seeds = range(options.first, options.first + options.runs)

    def one(name: str, seed: int) -> Outcome:
        interpreter = harness.Interpreter(str(PACKAGES)) if name.startswith("batch") else None
        return judge(name, folder, seed, interpreter, options.command, options.period)

    with ThreadPoolExecutor(at_once) as pool:
        running = {name: [pool.submit(one, name, seed) for seed in seeds] for name in names}
        for name, of_name in running.items():
            row = _row(name, [run.result() for run in of_name])
            print(*row, flush=True)
            yield row


def main() -> None:
    """Makes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--command", type=Path, default=harness.COMMAND)
    parser.add_argument("--write", type=Path, help="the page into which the table goes")
    parser.add_argument("--period", default="auto")
    parser.add_argument(
        "--keep", type=Path, help="a folder for the profiles; those that are there are asked again"
    )
    parser.add_argument("--at-once", type=int, default=8, help="services that run at the same time")
    parser.add_argument("programs", nargs="*")
    options = parser.parse_args()
    chosen = options.programs or names()
    services = [name for name in chosen if not name.startswith("batch")]
    jobs = [name for name in chosen if name.startswith("batch")]
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        rows = list(_rows(services, options, folder, options.at_once))
        rows += _rows(jobs, options, folder, 1)
    if options.write:
        _write(options.write, rows)


def _write(page: Path, rows: list[Row]) -> None:
    start, end = "<!-- table -->\n", "<!-- end of table -->"
    table = [
        "| program | runs | accused | rightly | other findings | grew, or may leak |",
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
