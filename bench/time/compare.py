"""Compares the shares of functions in time samples: nthbyte, py-spy, and profiling.sampling of CPython 3.15.

    python bench/time/compare.py PYTHON [SECONDS]

All profile the same program, whose shares are known (program.py). PYTHON is the interpreter to profile; nthbyte must be
installed for it. py-spy is used if it is on PATH, and profiling.sampling if PYTHON has it. Prints a table in Markdown.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from program import SHARES

PROGRAM = Path(__file__).with_name("program.py")


def run(words: list[str]) -> str:
    """Runs a command and returns its output. Exits if it fails."""
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stderr or done.stdout}")
    return done.stdout


def of_collapsed(text: str) -> Counter[str]:
    """Returns the samples of each function in collapsed stacks."""
    counts: Counter[str] = Counter()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        for name in SHARES:
            if re.search(rf"(?<![\w.]){name}(?!\w)", stack):
                counts[name] += int(count)
    return counts


def nthbyte(python: str, seconds: str, folder: Path) -> Counter[str]:
    """Samples with nthbyte."""
    profile = str(folder / "out.nthb")
    run([python, "-m", "nthbyte", "run", "-q", "-f", "--cpu", "-o", profile, str(PROGRAM), seconds])
    rows = json.loads(run([python, "-m", "nthbyte", "summary", "--json", "--top", "1000", profile]))
    time = rows["time"]
    return Counter({row["name"]: row["total_samples"] for row in time["rows"] if row["name"] in SHARES})


def py_spy(python: str, seconds: str, folder: Path) -> Counter[str]:
    """Samples with py-spy, at its default rate."""
    out = folder / "spy.txt"
    words = ["py-spy", "record", "--format", "raw", "-o", str(out), "--", python, str(PROGRAM), seconds]
    run(words)
    return of_collapsed(out.read_text())


def profiling(python: str, seconds: str, folder: Path) -> Counter[str]:
    """Samples with profiling.sampling, in CPU time."""
    out = folder / "sampling.txt"
    words = [python, "-m", "profiling.sampling", "run", "--mode", "cpu", "--collapsed", "-o", str(out)]
    run([*words, str(PROGRAM), seconds])
    return of_collapsed(out.read_text())


def main() -> None:
    """Prints the table."""
    python = sys.argv[1]
    seconds = sys.argv[2] if len(sys.argv) > 2 else "10"
    tools: dict[str, Callable[[str, str, Path], Counter[str]]] = {"nthbyte": nthbyte}
    if shutil.which("py-spy"):
        tools["py-spy"] = py_spy
    has = [python, "-c", "import profiling.sampling"]
    if subprocess.run(has, capture_output=True).returncode == 0:
        tools["profiling.sampling"] = profiling
    with tempfile.TemporaryDirectory() as folder:
        found = {name: tool(python, seconds, Path(folder)) for name, tool in tools.items()}
    print("| function | true share |", " | ".join(found), "|")
    print("|---|---|" + "---|" * len(found))
    for name, share in SHARES.items():
        shares = [f"{100 * counts[name] / sum(counts.values()):.1f} %" for counts in found.values()]
        print(f"| `{name}` | {share} % |", " | ".join(shares), "|")
    print("| samples | |", " | ".join(str(sum(counts.values())) for counts in found.values()), "|")


if __name__ == "__main__":
    main()
