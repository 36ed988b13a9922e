"""Compares estimates with exact values.

`--every 1` records each allocation and is exact. Each program runs once with it, and then with many
seeds and a period that gives some thousands of samples. For every function with at least 1 % of the
bytes, the check counts how often the exact value lies within the estimate's 95 % interval, and
computes the distance between the exact value and the mean of the estimates. A correct interval
contains the exact value in about 95 of 100 cases; an interval that always contains it is too wide.

The program must allocate the same each time. So string hashes are fixed, and the programs are
deterministic. The exact profile is run twice to measure the remaining differences; the table has them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAMS = ROOT / "bench" / "programs"
PAGE = ROOT / "docs" / "exactness.md"
CHOSEN = ("pycparser_source", "lark_python", "html5lib_page")
SMALLEST_SHARE = 0.01

INTRODUCTION = """\
# How exact the estimates are

Written by `make exactness` (`bench/exactness/measure.py`). Each program is profiled once with
`--every 1`, which records every allocation, and then sampled with many seeds. A *case* is one
function with at least 1 % of all bytes, with one seed.

- **own, total**: the number of cases in 100 in which the exact value lies within the 95 % interval, for the
  bytes that the function allocated itself and for those with all that it called.
- **bias**: the relative difference between the mean of the estimates over the seeds and the exact value: of the
  program as a whole, and of the function with the largest difference.

With `auto`, the period changes while the program runs, at other moments in each run; a seed is a run.
"""


def profile(python: str, program: str, folder: Path, *options: str) -> Any:
    """Profiles a program and returns its summary by function."""
    out = folder / "out.nthb"
    words = [python, "-m", "nthbyte", "run", "-q", "-f", *options, "-o", str(out), f"{program}.py"]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(words, cwd=PROGRAMS, env=environment, check=True, stdout=subprocess.DEVNULL)
    words = [python, "-m", "nthbyte", "summary", "--json", str(out)]
    return json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)


def rows(found: Any) -> dict[tuple[str, str, int], Any]:
    """Returns a summary's rows by function."""
    return {(row["name"], row["file"], row["line"]): row for row in found["rows"]}


def check(python: str, program: str, period: str, seeds: int, folder: Path) -> dict[str, Any]:
    """Measures one program, and returns its figures for the table."""
    profile(python, program, folder, "--every", "1")  # the first run compiles modules and fills disk caches
    exact = profile(python, program, folder, "--every", "1")
    again = profile(python, program, folder, "--every", "1")
    sampled = [
        # A seed would fix the period.
        profile(
            python, program, folder, "--every", period, *([] if period == "auto" else ["--seed", str(seed)])
        )
        for seed in range(1, seeds + 1)
    ]
    truth, repeated = rows(exact), rows(again)
    everything = exact["all"]["bytes"]["estimate"]
    held: dict[str, list[bool]] = {"self_bytes": [], "total_bytes": []}
    biases: list[float] = []
    unsteady = 0.0
    for figure, cases in held.items():
        for key, row in truth.items():
            value = row[figure]["estimate"]
            if value < SMALLEST_SHARE * everything:
                continue
            other = repeated[key][figure]["estimate"] if key in repeated else 0.0
            unsteady = max(unsteady, abs(other / value - 1))
            estimates = []
            for found in sampled:
                seen = rows(found).get(key)
                interval = (
                    seen[figure] if seen else {"low": 0.0, "estimate": 0.0, "high": found["unlisted"]["high"]}
                )
                cases.append(interval["low"] <= value <= interval["high"])
                estimates.append(interval["estimate"])
            biases.append(statistics.fmean(estimates) / value - 1)
    whole = statistics.fmean(found["all"]["bytes"]["estimate"] for found in sampled) / everything - 1
    return {
        "program": program,
        "samples": statistics.fmean(found["samples"] for found in sampled),
        "held": held,
        "whole": whole,
        "furthest": max(biases, key=abs),
        "unsteady": unsteady,
    }


def table(options: argparse.Namespace, period: str, folder: Path) -> list[str]:
    """Checks the chosen programs with a period, and returns the lines of its table."""
    lines = [
        f"Python {platform.python_version()}, period {period}, {options.seeds} seeds.",
        "",
        "| program | samples | cases | own | total | bias of the whole | furthest bias "
        "| two exact runs differ by |",
        "|---|---|---|---|---|---|---|---|",
    ]
    sums: dict[str, list[bool]] = {"self_bytes": [], "total_bytes": []}

    def percent(cases: list[bool]) -> str:
        return f"{100 * statistics.fmean(cases):.1f}"

    for program in options.programs:
        found = check(options.python, program, period, options.seeds, folder)
        for figure, cases in found["held"].items():
            sums[figure] += cases
        count = sum(map(len, found["held"].values()))
        own, total = (percent(cases) for cases in found["held"].values())
        lines.append(
            f"| {program} | {found['samples']:,.0f} | {count} | {own} | {total} "
            f"| {found['whole']:+.2%} | {found['furthest']:+.2%} | {found['unsteady']:.3%} |"
        )
        print(lines[-1], flush=True)
    count = sum(map(len, sums.values()))
    own, total = (percent(cases) for cases in sums.values())
    lines.append(f"| **all** | | {count} | **{own}** | **{total}** | | | |")
    return lines


def main() -> None:
    """Checks the chosen programs and writes docs/exactness.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--every", nargs="*", default=("64KiB", "auto"))
    parser.add_argument("--programs", nargs="*", default=CHOSEN)
    parser.add_argument("--dry", action="store_true", help="print the table; do not write docs/exactness.md")
    options = parser.parse_args()
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for period in options.every:
            lines += ["", *table(options, period, Path(folder))]
    print("\n".join(lines))
    if not options.dry:
        PAGE.write_text(INTRODUCTION + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
