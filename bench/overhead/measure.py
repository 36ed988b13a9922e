"""Runs real programs plainly and under nthbyte, in turns, and tabulates what differs.

CPU time is user and system time of the process, by wait4. Each round runs every variant once, in
an order that rotates; a program's figure is the least of its rounds over the least of the plain
rounds, for whatever else the machine does only adds.
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
from dataclasses import dataclass, field
from pathlib import Path

from page import PROGRAMS, geometric_mean, profiled, put, scripts, version

PERIODS = ("512KiB", "32KiB")


@dataclass
class Usage:
    """What a process took."""

    cpu: float
    """Seconds, user and system."""
    rss: int
    """Peak resident set size in bytes."""


@dataclass
class Runs:
    """All runs of one program."""

    plain: list[Usage] = field(default_factory=list)
    profiled: dict[str, list[Usage]] = field(default_factory=lambda: {period: [] for period in PERIODS})
    bytes_a_sample: dict[str, float] = field(default_factory=dict)
    samples: dict[str, int] = field(default_factory=dict)

    def ratio(self, period: str, what: str) -> float:
        """The least of the profiled rounds to the least of the plain ones."""
        least = min(getattr(usage, what) for usage in self.profiled[period])
        least_plain: float = min(getattr(usage, what) for usage in self.plain)
        return least / least_plain


def run(words: list[str]) -> Usage:
    """Runs a command to its end. Exits if it fails."""
    process = subprocess.Popen(words, cwd=PROGRAMS, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"failed: {' '.join(words)}")
    return Usage(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def measure(python: str, script: Path | None, rounds: int, folder: Path) -> Runs:
    """Measures one program, or the interpreter's start if there is no script."""
    program = [str(script)] if script else ["-c", "pass"]
    runs = Runs()
    variants: list[str | None] = [None, *PERIODS]
    profiles = {period: folder / f"{period}.nthb" for period in PERIODS}
    for turn in range(rounds + 1):
        for variant in variants[turn % 3 :] + variants[: turn % 3]:
            words = [python, *program]
            if variant:
                words = profiled(python, variant, profiles[variant], program)
            usage = run(words)
            # The first round warms the disk's cache and the compiled modules.
            if turn > 0:
                (runs.profiled[variant] if variant else runs.plain).append(usage)
    for period, profile in profiles.items():
        summary = subprocess.run(
            [python, "-m", "nthbyte", "summary", "--json", "--top", "1", str(profile)],
            check=True,
            stdout=subprocess.PIPE,
        )
        found = json.loads(summary.stdout)
        if found["lost"]:
            sys.exit(f"{script}: {found['lost']} samples were lost")
        runs.samples[period] = found["samples"]
        runs.bytes_a_sample[period] = profile.stat().st_size / max(1, found["samples"])
    return runs


def table(results: dict[str, Runs]) -> list[str]:
    """The lines of the Markdown table."""
    lines = [
        "| program | plain | CPU 512 KiB | CPU 32 KiB | peak RSS 512 KiB | peak RSS 32 KiB "
        "| samples at 32 KiB | bytes a sample |",
        "|---|---|---|---|---|---|---|---|",
    ]
    columns: dict[tuple[str, str], list[float]] = {}
    for name, runs in results.items():
        ratios = {}
        for what in ("cpu", "rss"):
            for period in PERIODS:
                ratios[what, period] = runs.ratio(period, what)
                columns.setdefault((what, period), []).append(ratios[what, period])
        cells = [f"×{ratios[key]:.3f}" for key in ratios]
        plain = statistics.median(usage.cpu for usage in runs.plain)
        lines.append(
            f"| {name} | {plain:.2f} s | {' | '.join(cells)} | {runs.samples['32KiB']:,} "
            f"| {runs.bytes_a_sample['32KiB']:.1f} |"
        )
    sizes = [runs.bytes_a_sample["32KiB"] for runs in results.values()]
    means = " | ".join(f"**×{geometric_mean(numbers):.3f}**" for numbers in columns.values())
    worst = " | ".join(f"×{max(numbers):.3f}" for numbers in columns.values())
    lines.append(f"| **geometric mean** | | {means} | | {geometric_mean(sizes):.1f} |")
    lines.append(f"| worst | | {worst} | | {max(sizes):.1f} |")
    return lines


def write(python: str, lines: list[str], start: Runs, rounds: int) -> None:
    """Puts the measurement into docs/performance.md, beside those of other interpreters."""
    name = version(python)
    more = statistics.median(one.cpu - other.cpu for one, other in zip(start.profiled["512KiB"], start.plain))
    put(
        f"overhead {name}",
        [
            f"### {name}",
            "",
            f"{platform.machine()}, {os.cpu_count()} cores, {rounds} rounds. Ratios: profiled to plain.",
            "",
            *lines,
            "",
            f"Start: {more * 1000:.0f} ms of CPU time more than `python -c pass`.",
        ],
    )


def main() -> None:
    """Measures what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--python", default=sys.executable, help="an interpreter with nthbyte and the programs' packages"
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="*", help="programs, without .py")
    parser.add_argument("--dry", action="store_true", help="print the table, and leave docs/performance.md")
    options = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        start = measure(options.python, None, 3 * options.rounds, Path(folder))
        for script in scripts(options.only):
            results[script.stem] = runs = measure(options.python, script, options.rounds, Path(folder))
            figures = " ".join(
                f"{what} {runs.ratio(period, what):.3f}" for what in ("cpu", "rss") for period in PERIODS
            )
            print(f"{script.stem}: {figures}", flush=True)
    lines = table(results)
    print("\n".join(lines))
    if not options.dry and not options.only:
        write(options.python, lines, start, options.rounds)


if __name__ == "__main__":
    main()
