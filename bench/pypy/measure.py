"""The paper's Figures 8 to 11, with our numbers: ``measure.py PYPY [--rounds N]``.

Writes results.md and two SVG plots beside this file. A profiled and a plain run happen at the same time, in two
processes on one core, so that disturbances affect both equally. A figure is the geometric mean of the ratios of such
pairs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROGRAMS = ("gcbench", "loop", "tokens", "documents")
PERIODS = [32 << 10, 128 << 10, 512 << 10, 2 << 20, 8 << 20, 32 << 20]
RATES = [100, 1000, 2000]
NURSERY = "4M"
COLOURS = ("#c0392b", "#2471a3", "#1e8449", "#7d3c98")
# The largest number of bytes that live beside a run. Each setting of a round has another number, because a few KiB
# change the times of major collections, which makes gcbench up to 4 % faster or slower. Both runs of a pair have the
# same number.
BALLAST = 8 << 20
# The period for measuring time samples: there are almost no allocation samples.
RARELY = 1 << 40


def main() -> None:
    """Measures, and writes the page and the plots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pypy")
    parser.add_argument("--rounds", type=int, default=6, help="of two pairs of runs each")
    options = parser.parse_args()
    # The first is the control: two plain runs.
    settings: list[Any] = [None, *({"every": period} for period in PERIODS)]
    settings += [{"every": RARELY}, *({"every": RARELY, "cpu": rate} for rate in RATES)]
    runs = {name: _measure(options.pypy, name, options.rounds, settings) for name in PROGRAMS}
    speeds = {jit: _speed(options.pypy, jit, options.rounds) for jit in (True, False)}
    version = subprocess.run(
        [options.pypy, "-c", "import sys; print(sys.version.replace(chr(10), ' '))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (HERE / "results.md").write_text(_page(version, options.rounds, runs, speeds))
    by_period = {name: [_ratio(runs[name], {"every": period}) for period in PERIODS] for name in PROGRAMS}
    by_rate = {
        name: [_ratio(runs[name], {"every": RARELY, "cpu": rate}) for rate in RATES] for name in PROGRAMS
    }
    periods = [_size(period) for period in PERIODS]
    _plot("allocation.svg", "Allocation sampling: period and overhead", periods, by_period)
    _plot("time.svg", "Time sampling: samples a second and overhead", [str(rate) for rate in RATES], by_rate)


def _measure(pypy: str, program: str, rounds: int, settings: list[Any], *flags: str) -> list[Any]:
    """Returns a dictionary for each pair of runs: ``setting``, ``run`` and ``plain``."""
    pairs = []
    for _ in range(rounds):
        # Two equal processes differ by up to 2 %, because of memory addresses and the order of JIT compilation. So
        # each is the plain one in half of the pairs, and each round has new processes.
        processes = _two(pypy, program, *flags)
        for setting in settings:
            ballast = random.randrange(BALLAST)
            for order in (processes, processes[::-1]):
                for process, what in zip(order, (setting, None)):
                    process.stdin.write(json.dumps({"setting": what, "ballast": ballast}) + "\n")
                    process.stdin.flush()
                run, plain = (json.loads(process.stdout.readline()) for process in order)
                pairs.append({"setting": setting, "run": run, "plain": plain})
        for process in processes:
            process.communicate()
    return pairs


def _two(pypy: str, program: str, *flags: str) -> list[Any]:
    """Starts two processes that wait for settings, on one core."""
    core = {max(os.sched_getaffinity(0))}
    return [
        subprocess.Popen(
            [pypy, *flags, str(HERE / "one.py"), program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYPY_GC_NURSERY": NURSERY},
            preexec_fn=lambda: os.sched_setaffinity(0, core),
        )
        for _ in range(2)
    ]


def _speed(pypy: str, jit: bool, rounds: int) -> tuple[float, float]:
    """Returns GB/s of the allocating loop: plain, and with a period of 512 KiB beside it."""
    flags = () if jit else ("--jit", "off")
    pairs = _measure(pypy, "loop", rounds if jit else 1, [{"every": 512 << 10}], *flags)
    plain = 200_000_000 * 16 / 1e9 / _plain(pairs)
    return plain, plain / _ratio(pairs, {"every": 512 << 10})


def _of(pairs: list[Any], setting: Any) -> list[Any]:
    return [pair for pair in pairs if pair["setting"] == setting]


def _ratios(pairs: list[Any], setting: Any, clock: str) -> list[float]:
    return [pair["run"][clock] / pair["plain"][clock] for pair in _of(pairs, setting)]


def _ratio(pairs: list[Any], setting: Any, clock: str = "thread") -> float:
    return statistics.geometric_mean(_ratios(pairs, setting, clock))


def _ratio_and_error(pairs: list[Any], setting: Any) -> str:
    """The ratio, and its standard error from the spread of the pairs."""
    logarithms = [math.log(ratio) for ratio in _ratios(pairs, setting, "thread")]
    error = statistics.stdev(logarithms) / math.sqrt(len(logarithms))
    ratio = _ratio(pairs, setting)
    return f"{ratio:.3f} ± {ratio * error:.3f}"


def _plain(pairs: list[Any]) -> float:
    """Seconds of a plain run."""
    return statistics.median(pair["plain"]["thread"] for pair in pairs)


def _page(version: str, rounds: int, runs: dict[str, list[Any]], speeds: dict[bool, Any]) -> str:
    lines = [
        "# Sampling inside PyPy: what it costs",
        "",
        f"Written by `bench/pypy/measure.py`, {rounds} rounds of two pairs, nursery {NURSERY}iB, {version}.",
        "1.000 is as fast as without nthbyte. A profiled and a plain run share one core, and a figure is the geometric",
        "mean of the ratios of such pairs, ± its standard error from their spread: rather too much, for the two",
        "processes, which may differ by 2 %, change sides in half of the pairs. Each setting of a round has another",
        "amount of live memory beside both, up to 8 MiB: major collections begin at other moments then, which makes",
        "gcbench up to 4 % faster or slower. Time is CPU time of the program's thread; in brackets that of the whole",
        "process, with the thread that writes the profile. *No sample* has the hook placed and no sample due (a period",
        "of 1 TiB); the control is two plain runs.",
        "",
        "## Allocation sampling (Figure 8)",
        "",
        "![period and overhead](allocation.svg)",
        "",
        "| program | " + " | ".join(_size(period) for period in PERIODS) + " | no sample | control |",
        "|---|" + "---|" * (len(PERIODS) + 2),
    ]
    for name, those in runs.items():
        cells = [
            f"{_ratio_and_error(those, {'every': period})} ({_ratio(those, {'every': period}, 'process'):.3f})"
            for period in [*PERIODS, RARELY]
        ]
        cells.append(_ratio_and_error(those, None))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "## Time sampling (Figure 9)",
        "",
        "![rate and overhead](time.svg)",
        "",
        "| program | " + " | ".join(f"{rate} Hz" for rate in RATES) + " |",
        "|---|" + "---|" * len(RATES),
    ]
    for name, those in runs.items():
        cells = [_ratio_and_error(those, {"every": RARELY, "cpu": rate}) for rate in RATES]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "## At 32 KiB (Figure 10)",
        "",
        "Overhead at 1000 samples a second is 1 + (overhead - 1) / (samples a second) · 1000.",
        "",
        "| program | samples/s | overhead | at 1000/s | µs a sample | lost | bytes a sample |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, those in runs.items():
        setting = {"every": PERIODS[0]}
        run, plain, overhead = _of(those, setting)[-1]["run"], _plain(those), _ratio(those, setting)
        rate = run["samples"] / (plain * overhead)
        lines.append(
            f"| {name} | {rate:,.0f} | {overhead:.3f} | {1 + (overhead - 1) / rate * 1000:.4f} |"
            f" {(overhead - 1) * plain / run['samples'] * 1e6:.2f} | {run['lost']} |"
            f" {run['size'] / run['samples']:.1f} |"
        )
    lines += [
        "",
        "## What the programs allocate (Figure 11)",
        "",
        "| program | time | allocated | GB/s |",
        "|---|---|---|---|",
    ]
    for name, those in runs.items():
        allocated = _of(those, {"every": PERIODS[0]})[-1]["run"]["allocated"] / 1e9
        plain = _plain(those)
        lines.append(f"| {name} | {plain:.2f} s | {allocated:.2f} GB | {allocated / plain:.2f} |")
    lines += [
        "",
        "## The allocation rate",
        "",
        "The loop that keeps two integers alive, 16 bytes each:",
        "",
        "| | plain | profiled at 512 KiB |",
        "|---|---|---|",
    ]
    for jit, (plain, profiled) in speeds.items():
        lines.append(f"| JIT {'on' if jit else 'off'} | {plain:.2f} GB/s | {profiled:.2f} GB/s |")
    return "\n".join(lines) + "\n"


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def _plot(name: str, title: str, ticks: list[str], series: dict[str, list[float]]) -> None:
    """Writes lines over evenly spaced ticks as an SVG."""
    width, height, left, bottom, top = 640, 360, 60, 50, 40
    low, high = 0.9, max(1.2, math.ceil(max(max(values) for values in series.values()) * 10) / 10)

    def x(index: int) -> float:
        return left + (width - left - 150) * index / max(1, len(ticks) - 1)

    def y(value: float) -> float:
        return height - bottom - (height - bottom - top) * (max(low, value) - low) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"'
        ' font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{left}" y="20" font-size="14">{title}</text>',
    ]
    steps = round((high - low) / 0.1)
    for step in range(0, steps + 1, max(1, steps // 8)):
        value = low + step * 0.1
        parts.append(f'<line x1="{left}" x2="{width - 150}" y1="{y(value)}" y2="{y(value)}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 8}" y="{y(value) + 4}" text-anchor="end">{value:.1f}</text>')
    for index, tick in enumerate(ticks):
        parts.append(f'<text x="{x(index)}" y="{height - bottom + 20}" text-anchor="middle">{tick}</text>')
    for number, (label, values) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{x(index):.1f},{y(value):.1f}" for index, value in enumerate(values))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for index, value in enumerate(values):
            parts.append(f'<circle cx="{x(index):.1f}" cy="{y(value):.1f}" r="3" fill="{colour}"/>')
        parts.append(f'<text x="{width - 135}" y="{top + 20 * number + 10}" fill="{colour}">{label}</text>')
    parts.append("</svg>")
    (HERE / name).write_text("\n".join(parts) + "\n")


main()
