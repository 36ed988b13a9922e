"""The planted leaks of ``tests/leaks/programs`` under nthbyte and under memray, side by side.

For each program: where the line that leaks stands in what each tool says, how many lines there are, and what the tool
costs. ``--write docs/leaks.md`` puts the table into that page.

*Rank* is the place of the first planted line. Of nthbyte, among the findings of ``nthbyte leaks``, the largest first.
memray gives no verdict: ``memray table --leaks`` lists what was not freed when the program ended. Here its records are
summed by the innermost line of the program's own file, as ``nthbyte leaks`` does it, or else by the innermost line;
the largest first.

*CPU* is the CPU time of the run and its children over the plain run's: the least of some rounds, in each of which all
three run one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import memray

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAMS = REPOSITORY / "tests" / "leaks" / "programs"
PERIOD = "16KiB"
START, END = "<!-- peers -->\n", "<!-- end of peers -->"


@dataclass(frozen=True)
class Said:
    """What a tool says of a program."""

    rank: int | None
    """Of the first planted line, from 1; ``None`` if none is named."""
    rows: int
    """How many lines are named in all."""
    file_bytes: int


def planted(program: Path) -> set[int]:
    """Returns the lines that leak."""
    lines = program.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# LEAK")}


def cpu_seconds(words: list[str], folder: Path) -> float:
    """Runs a command, and returns the CPU time of it and its children."""
    null = subprocess.DEVNULL
    # The services do not wait between their requests: only work costs anything.
    environment = {**os.environ, "NTHBYTE_TEST_SECONDS": "0"}
    process = subprocess.Popen(words, cwd=folder, env=environment, stdin=null, stdout=null, stderr=null)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)}: exit status {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def under_nthbyte(program: Path, folder: Path) -> list[str]:
    """Returns the command that profiles a program with nthbyte."""
    options = ["run", "-q", "-f", "--every", PERIOD, "--seed", "1", "-o", str(folder / "app.nthb")]
    return [sys.executable, "-m", "nthbyte", *options, str(program), "1"]


def under_memray(program: Path, folder: Path) -> list[str]:
    """Returns the command that profiles a program with memray, as its manual says for leaks."""
    options = ["-q", "-f", "--trace-python-allocators", "--follow-fork", "-o", str(folder / "app.bin")]
    return [sys.executable, "-m", "memray", "run", *options, str(program), "1"]


def said_by_nthbyte(program: Path, folder: Path) -> Said:
    """Asks ``nthbyte leaks`` of the profiles in a folder."""
    profiles = sorted(folder.glob("app*.nthb"))
    words = [sys.executable, "-m", "nthbyte", "leaks", "--json", "--repeated", *map(str, profiles)]
    report = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    findings = [finding for profile in report["profiles"] for finding in profile["findings"]]
    findings.sort(key=lambda finding: -finding["grown"]["estimate"])
    lines = planted(program)

    def names_it(finding: dict[str, list[dict[str, dict[str, object]]]]) -> bool:
        places = [finding["place"], *(line["what"] for line in finding["lines"])]
        places += [part["place"] for part in finding["parts"]]
        return any(place["line"] in lines and place["file"] == str(program) for place in places)

    ranks = (rank for rank, finding in enumerate(findings, 1) if names_it(finding))
    return Said(next(ranks, None), len(findings), sum(path.stat().st_size for path in profiles))


def said_by_memray(program: Path, folder: Path) -> Said:
    """Sums what memray recorded as not freed."""
    files = sorted(folder.glob("app.bin*"))
    sizes: Counter[tuple[str, int]] = Counter()
    for path in files:
        with memray.FileReader(path) as reader:
            for record in reader.get_leaked_allocation_records(merge_threads=True):
                stack = list(_frames(record))
                own = (frame for frame in stack if frame[0] == str(program))
                sizes[next(own, stack[0] if stack else ("", 0))] += record.size
    lines = {(str(program), line) for line in planted(program)}
    ranks = (rank for rank, (place, _) in enumerate(sizes.most_common(), 1) if place in lines)
    return Said(next(ranks, None), len(sizes), sum(path.stat().st_size for path in files))


def _frames(record: memray.AllocationRecord) -> Iterator[tuple[str, int]]:
    for _, file, line in record.stack_trace():
        yield file, line


def measure(program: Path, rounds: int) -> str:
    """Returns the row of a program."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commands = {
            "plain": [sys.executable, str(program), "1"],
            "nthbyte": under_nthbyte(program, folder),
            "memray": under_memray(program, folder),
        }
        least = dict.fromkeys(commands, float("inf"))
        for _ in range(rounds):
            for path in folder.iterdir():
                path.unlink()
            for tool, words in commands.items():
                least[tool] = min(least[tool], cpu_seconds(words, folder))
        ours, theirs = said_by_nthbyte(program, folder), said_by_memray(program, folder)
    cells = [program.stem.removeprefix("leak_").replace("_", " ")]
    for tool, said in (("nthbyte", ours), ("memray", theirs)):
        cells.append(f"{said.rank or 'not named'} of {said.rows}")
        cells.append(f"×{least[tool] / least['plain']:.2f}")
        cells.append(f"{said.file_bytes / 1024:,.0f} KiB")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Measures all programs, and prints or writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", type=Path, help="the page into which the table goes")
    parser.add_argument("programs", nargs="*", help="names without .py")
    options = parser.parse_args()
    rows = [
        f"(memray {memray.__version__}, CPython {sys.version.split()[0]}, least of {options.rounds} rounds.)",
        "",
        "| leak | nthbyte: rank | CPU | file | memray: rank | CPU | file |",
        "|---|---|---|---|---|---|---|",
    ]
    for program in sorted(PROGRAMS.glob("leak_*.py")):
        if not options.programs or program.stem in options.programs:
            rows.append(measure(program, options.rounds))
            print(rows[-1], flush=True)
    if options.write:
        before, rest = options.write.read_text().split(START, 1)
        after = rest.split(END, 1)[1]
        options.write.write_text(before + START + "\n".join(rows) + "\n" + END + after)


if __name__ == "__main__":
    main()
