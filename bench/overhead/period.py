"""Compares `--every auto` with `--every 512KiB`: the width of intervals, and the cost.

Each program runs beside a plain run of it, both on one core at the same time, as in `measure.py`, and once with each
period in turn. The table says the median width of the intervals of the first ten functions of `nthbyte summary`, the
CPU time divided by that of the plain run (geometric mean of the pairs), the samples, and the size of the profile.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from measure import Usage, run_together

from page import ROOT, put, scripts, version

PAGE = ROOT / "docs" / "guide" / "period.md"
PERIODS = ("512KiB", "auto")


def width(row: Any) -> float:
    """Half the length of the interval of a function's own bytes, relative to the estimate."""
    own = row["self_bytes"]
    return float(own["high"] - own["low"]) / (2 * own["estimate"])


def size(period: int) -> str:
    """A period as `--every` takes it."""
    return f"{period >> 20} MiB" if period >= 1 << 20 else f"{period >> 10} KiB"


def measure(python: str, script: Path, rounds: int, folder: Path) -> dict[str, dict[str, float | str]]:
    """Measures one program, and returns its figures by period."""
    pairs: dict[str, list[tuple[Usage, Usage]]] = {period: [] for period in PERIODS}
    plain = [python, str(script)]
    widths: dict[str, list[float]] = {period: [] for period in PERIODS}
    figures: dict[str, dict[str, float | str]] = {}
    run_together([plain])
    for turn in range(rounds):
        for period in PERIODS:
            profile = folder / f"{period}.nthb"
            words = [python, str(Path(python).parent / "nthbyte"), "run", "-q", "-f", "--every", period]
            command = [*words, "-o", str(profile), str(script)]
            # Each of the two is started first in half of the rounds.
            order = 1 if turn % 2 else -1
            one, other = run_together([plain, command][::order])[::order]
            pairs[period].append((one, other))
            words = [python, "-m", "nthbyte", "summary", "--json", "--top", "10", str(profile)]
            found = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
            widths[period].append(median(map(width, found["rows"])))
            first, last = size(found["periods"][0]), size(found["periods"][-1])
            figures[period] = {
                "samples": found["samples"],
                "lost": found["lost"],
                "file": profile.stat().st_size,
                "periods": first if first == last else f"{first} to {last}",
            }
    for period in PERIODS:
        ratios = [other.cpu / plain.cpu for plain, other in pairs[period]]
        figures[period] |= {"width": median(widths[period]), "cpu": geometric_mean(ratios)}
    return figures


def main() -> None:
    """Measures the programs, and writes the table into docs/guide/period.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--python", default=sys.executable, help="an interpreter with nthbyte and the programs' packages"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="programs, without .py")
    parser.add_argument("--dry", action="store_true", help="print the table; do not write it")
    options = parser.parse_args()
    lines = [
        f"`bench/overhead/period.py`, {version(options.python)}, {platform.machine()}, {os.cpu_count()} cores of a "
        f"shared machine, {options.rounds} pairs. Each profiled run has a plain run beside it on one core; CPU is the "
        "ratio of the two, and two plain runs differ by one or two per cent. *Width* is the median half-width of the "
        "95 % intervals of the first ten functions.",
        "",
        "| program | width at 512 KiB | width at auto | CPU at 512 KiB | CPU at auto | samples at 512 KiB | at auto "
        "| periods of auto | profile at auto |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    all_found = []
    with tempfile.TemporaryDirectory() as folder:
        for script in scripts(options.only):
            found = measure(options.python, script, options.rounds, Path(folder))
            all_found.append(found)
            fixed, auto = (found[period] for period in PERIODS)
            cells = [
                script.stem,
                f"±{fixed['width']:.0%}",
                f"±{auto['width']:.1%}",
                f"×{fixed['cpu']:.3f}",
                f"×{auto['cpu']:.3f}",
                f"{fixed['samples']:,}",
                f"{auto['samples']:,}",
                f"{auto['periods']}",
                f"{float(auto['file']) / 1024:,.0f} KiB",
            ]
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], f"lost {auto['lost']}", flush=True)
    means = {
        (period, name): geometric_mean(float(found[period][name]) for found in all_found)
        for period in PERIODS
        for name in ("width", "cpu")
    }
    lines.append(
        f"| **geometric mean** | **±{means['512KiB', 'width']:.0%}** | **±{means['auto', 'width']:.1%}** "
        f"| **×{means['512KiB', 'cpu']:.3f}** | **×{means['auto', 'cpu']:.3f}** | | | | |"
    )
    print("\n".join(lines))
    if not options.dry and not options.only:
        put("period", lines, PAGE)


if __name__ == "__main__":
    main()
