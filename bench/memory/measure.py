"""How much of the resident set of real programs ``nthbyte memory`` does not know.

Each program runs once under nthbyte; then the table has the share of each kind of memory at the peak of its resident
set, as ``nthbyte memory --json`` says it. ``--write docs/memory.md`` puts the table into that page. The programs on
CPython need ``numpy``, ``pandas`` and ``sympy``; ``--pypy`` names the interpreter for the last row.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parents[1]
OWN = BENCH / "memory" / "programs"
PROGRAMS = [
    OWN / "numpy_arrays.py",
    OWN / "pandas_job.py",
    OWN / "many_objects.py",
    OWN / "fragmented.py",
    OWN / "threads.py",
    BENCH / "programs" / "sympy_algebra.py",
]
PYPY = [OWN / "many_objects.py"]
START, END = "<!-- unknown -->\n", "<!-- end of unknown -->"

COLUMNS = {
    "Python, live": ["objects", "slack", "large", "nursery"],
    "Python, free": ["free_blocks", "free_pages", "free_arenas", "unused"],
    "native": ["native", "mappings", "pinned", "library_free", "not_resident"],
    "program": ["before", "file_text", "file_data", "cuda_files", "stacks", "machine_code", "shared"],
    "nthbyte": ["agent"],
    "**unknown**": ["unknown"],
}


def measure(python: str, program: Path, options: list[str]) -> Any:
    """Runs a program, and returns its report."""
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder, "out.nthb"))
        command = [python, "-m", "nthbyte", "run", "-q", *options, "-o", out, program.name]
        subprocess.run(command, cwd=program.parent, check=True, stdout=subprocess.DEVNULL)
        command = [python, "-m", "nthbyte", "memory", "--json", out]
        text = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return json.loads(text)


def row(name: str, report: Any) -> str:
    """Returns a row of the table."""
    bytes_of = {row["key"]: row["bytes"]["estimate"] for row in report["rows"]}
    rss = report["rss"]
    shares = [sum(bytes_of.get(key, 0) for key in keys) / rss for keys in COLUMNS.values()]
    cells = [f"`{name}`", f"{rss / 2**20:.0f} MiB", *(f"{100 * share:.1f} %" for share in shares)]
    return "| " + " | ".join(cells) + " |\n"


def main() -> None:
    """Measures all programs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pypy", help="measure one program with this PyPy too")
    parser.add_argument("--write", type=Path, help="the page that has the table")
    parser.add_argument("--no-native", action="store_true", help="leave native memory out")
    arguments = parser.parse_args()
    table = "| program | RSS | " + " | ".join(COLUMNS) + " |\n"
    table += "|---" * (len(COLUMNS) + 2) + "|\n"
    options = ["--no-native" if arguments.no_native else "--native"]
    runs = [(sys.executable, program, options, "") for program in PROGRAMS]
    if arguments.pypy:
        runs += [(arguments.pypy, program, [], ", PyPy") for program in PYPY]
    for python, program, words, suffix in runs:
        report = measure(python, program, words)
        table += row(program.stem + suffix, report)
        print(table.splitlines()[-1], file=sys.stderr)
    if arguments.write:
        before, _, rest = arguments.write.read_text().partition(START)
        _, _, after = rest.partition(END)
        arguments.write.write_text(before + START + table + END + after)
    else:
        print(table)


if __name__ == "__main__":
    main()
