"""Measures the total cost of a sample on a stack 20 frames deep: the slow path, the walk, the record, and the
deallocation of the object.

Each pattern of allocations runs in sessions with different periods, in turns, in this process. The least CPU time of
the thread counts; the writer thread is not included. The base is a session whose period is so long that nothing is
sampled. Periods are small: with large ones, the cost of the samples would be less than the variation between runs.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable

import nthbyte
from page import put, version

PERIODS = ("1KiB", "2KiB", "4KiB")
BASE = "1TiB"
DEPTH = 20
TURNS = 15


def churn() -> None:
    """Strings, each dropped at once."""
    for number in range(1_000_000, 1_800_000):
        str(number)


def bursts() -> None:
    """Strings, dropped fifty at a time."""
    for _ in range(16_000):
        [str(number) for number in range(1_000_000, 1_000_050)]


def growth() -> None:
    """Strings, all of them kept to the end."""
    kept = [str(number) for number in range(1_000_000, 1_800_000)]
    kept.clear()


def mixture() -> None:
    """Strings, lists and tuples; one string in five is kept."""
    kept = []
    for number in range(1_000_000, 1_400_000):
        text = str(number)
        pair = (text, [number, text])
        if number % 5 == 0:
            kept.append(pair[0])


def nested(depth: int, function: Callable[[], int]) -> int:
    """Calls a function with this many more frames on the stack."""
    return nested(depth - 1, function) if depth else function()


def thread_nanos(program: Callable[[], None]) -> int:
    """The thread's CPU time for a program, in nanoseconds."""
    start = time.thread_time_ns()
    program()
    return time.thread_time_ns() - start


def measure(program: Callable[[], None], folder: str) -> list[float]:
    """Nanoseconds per sample with each of the periods."""
    least: dict[str, int] = {}
    samples: dict[str, int] = {}
    for _ in range(TURNS):
        for period in (*PERIODS, BASE):
            nthbyte.start(os.path.join(folder, "out.nthb"), force=True, every=period)
            # The frames of this module and of `thread_nanos` are among the twenty.
            nanos = nested(DEPTH - 7, lambda: thread_nanos(program))
            result = nthbyte.stop()
            if result.lost:
                sys.exit(f"{program.__name__}: {result.lost} samples were lost")
            least[period] = min(nanos, least.get(period, nanos))
            samples[period] = result.samples
    return [(least[period] - least[BASE]) / samples[period] for period in PERIODS]


def main() -> None:
    """Measures, prints the table and writes it into docs/performance.md."""
    lines = ["| allocations | " + " | ".join(PERIODS) + " |", "|---" * (len(PERIODS) + 1) + "|"]
    with tempfile.TemporaryDirectory() as folder:
        for program in (churn, bursts, growth, mixture):
            costs = " | ".join(f"{nanos:.0f} ns" for nanos in measure(program, folder))
            lines.append(f"| {program.__doc__.rstrip('.').lower()} | {costs} |")
            print(lines[-1], flush=True)
    name = version(sys.executable)
    heading = f"### One sample, {DEPTH} frames deep, {name}"
    about = f"{platform.machine()}. The allocation, the walk, the record and the free; least of {TURNS} runs."
    put(f"sample {name}", [heading, "", about, "", *lines])


if __name__ == "__main__":
    main()
