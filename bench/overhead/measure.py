"""Runs real programs with and without nthbyte, side by side, and writes the ratios into a table.

CPU time is user and system time of the process, by wait4. On a shared machine, two equal runs one after
the other differ by 20 % and more. So a plain and a profiled run start at the same time on
one core. They take turns every few milliseconds, so disturbances affect both equally. A program's figure is
the geometric mean of the ratios of such pairs. Pairs of two plain runs are the control: they show the error.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean, median

from page import PROGRAMS, profiled, put, scripts, version

PERIODS = ("512KiB", "32KiB")
# The variants that are paired with a plain run. The plain variant is the control.
VARIANTS = (*PERIODS, "plain")


@dataclass
class Usage:
    """The resources that a process used."""

    cpu: float
    """Seconds, user and system."""
    rss: int
    """Peak resident set size in bytes."""


@dataclass
class Runs:
    """All runs of one program."""

    pairs: dict[str, list[tuple[Usage, Usage]]] = field(
        default_factory=lambda: {variant: [] for variant in VARIANTS}
    )
    """By variant: pairs of a plain run and the run beside it."""
    bytes_a_sample: dict[str, float] = field(default_factory=dict)
    samples: dict[str, int] = field(default_factory=dict)

    def cpu(self, variant: str) -> float:
        """CPU time, divided by that of the plain run beside it."""
        return geometric_mean([other.cpu / plain.cpu for plain, other in self.pairs[variant]])

    def rss(self, variant: str) -> float:
        """The smallest peak, divided by the smallest peak of the plain runs."""
        return min(other.rss for _, other in self.pairs[variant]) / min(
            plain.rss for plain, _ in self.pairs[variant]
        )

    def plain_cpu(self) -> float:
        """The median of the plain runs, in seconds."""
        return median(plain.cpu for pairs in self.pairs.values() for plain, _ in pairs)


def run_together(commands: list[list[str]]) -> list[Usage]:
    """Runs commands at the same time on one core, and waits for their ends. Exits if one fails."""
    core = {max(os.sched_getaffinity(0))}
    processes = [
        subprocess.Popen(
            words,
            cwd=PROGRAMS,
            stdout=subprocess.DEVNULL,
            preexec_fn=lambda: os.sched_setaffinity(0, core),
        )
        for words in commands
    ]
    usages = []
    for process, words in zip(processes, commands):
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            sys.exit(f"failed: {' '.join(words)}")
        usages.append(Usage(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024))
    return usages


def measure(python: str, script: Path | None, rounds: int, folder: Path) -> Runs:
    """Measures one program, or the interpreter's start if there is no script."""
    program = [str(script)] if script else ["-c", "pass"]
    plain = [python, *program]
    runs = Runs()
    profiles = {period: folder / f"{period}.nthb" for period in PERIODS}
    commands = {
        period: profiled(python, period, profile, program) for period, profile in profiles.items()
    } | {"plain": plain}
    # The first run compiles modules and fills disk caches.
    run_together([plain, commands[PERIODS[0]]])
    for turn in range(rounds):
        for variant, command in commands.items():
            # Each of the two is started first in half of the rounds.
            order = 1 if turn % 2 else -1
            one, other = run_together([plain, command][::order])[::order]
            runs.pairs[variant].append((one, other))
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
        "| program | plain | CPU 512 KiB | CPU 32 KiB | control | peak RSS 512 KiB | peak RSS 32 KiB "
        "| samples at 32 KiB | bytes a sample |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rows = []
    for name, runs in results.items():
        ratios = [runs.cpu(variant) for variant in VARIANTS] + [runs.rss(period) for period in PERIODS]
        rows.append(ratios)
        cells = " | ".join(f"×{ratio:.3f}" for ratio in ratios)
        lines.append(
            f"| {name} | {runs.plain_cpu():.2f} s | {cells} | {runs.samples['32KiB']:,} "
            f"| {runs.bytes_a_sample['32KiB']:.1f} |"
        )
    sizes = [runs.bytes_a_sample["32KiB"] for runs in results.values()]
    means = " | ".join(f"**×{geometric_mean(column):.3f}**" for column in zip(*rows))
    worst = " | ".join(f"×{max(column):.3f}" for column in zip(*rows))
    lines.append(f"| **geometric mean** | | {means} | | {geometric_mean(sizes):.1f} |")
    lines.append(f"| worst | | {worst} | | {max(sizes):.1f} |")
    return lines


def write(python: str, lines: list[str], start: Runs, rounds: int) -> None:
    """Writes the measurement into docs/performance.md, and keeps those of other interpreters."""
    name = version(python)
    more = median(other.cpu - plain.cpu for plain, other in start.pairs["512KiB"])
    put(
        f"overhead {name}",
        [
            f"### {name}",
            "",
            f"{platform.machine()}, {os.cpu_count()} cores, {rounds} pairs. Ratios: profiled to plain.",
            "",
            *lines,
            "",
            f"Start: {more * 1000:.0f} ms of CPU time more than `python -c pass`.",
        ],
    )


def main() -> None:
    """Measures the programs that the command line selects."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--python", default=sys.executable, help="an interpreter with nthbyte and the programs' packages"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="programs, without .py")
    parser.add_argument(
        "--dry", action="store_true", help="print the table; do not write docs/performance.md"
    )
    options = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        start = measure(options.python, None, 3 * options.rounds, Path(folder))
        for script in scripts(options.only):
            results[script.stem] = runs = measure(options.python, script, options.rounds, Path(folder))
            cpu = " ".join(f"{variant} {runs.cpu(variant):.3f}" for variant in VARIANTS)
            rss = " ".join(f"{period} {runs.rss(period):.3f}" for period in PERIODS)
            print(f"{script.stem}: CPU {cpu}, RSS {rss}", flush=True)
    lines = table(results)
    print("\n".join(lines))
    if not options.dry and not options.only:
        write(options.python, lines, start, options.rounds)


if __name__ == "__main__":
    main()
