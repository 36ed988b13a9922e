"""The cost of a sample on a stack 20 frames deep: the slow path, the walk, the record, and the deallocation of the object.

    sample.py TURNS

Each pattern of allocations runs in sessions with different periods, in turns, in this process. The least CPU time of
the thread counts; the writer thread is not included. The base is a session whose period is so long that nothing is
sampled. Periods are small: with large ones, the cost of the samples would be less than the variation between runs.
Prints JSON: for each pattern, nanoseconds a sample for each period.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable

import nthbyte

PERIODS = ("1KiB", "2KiB", "4KiB")
BASE = "1TiB"
DEPTH = 20
# A session without lost samples is tried so often.
TRIES = 20


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


def measure(program: Callable[[], None], turns: int, folder: str) -> dict[str, float]:
    """Nanoseconds a sample with each of the periods."""
    least: dict[str, int] = {}
    samples: dict[str, int] = {}
    for _ in range(turns):
        for period in (*PERIODS, BASE):
            nanos, samples[period] = session(program, period, folder)
            least[period] = min(nanos, least.get(period, nanos))
    return {period: (least[period] - least[BASE]) / samples[period] for period in PERIODS}


def session(program: Callable[[], None], period: str, folder: str) -> tuple[int, int]:
    """Nanoseconds and samples of a session. One that loses samples, on a busy machine, is repeated."""
    for _ in range(TRIES):
        nthbyte.start(os.path.join(folder, "out.nthb"), force=True, every=period)
        # The frames of this module, its caller and `thread_nanos` are among the twenty.
        nanos = nested(DEPTH - 8, lambda: thread_nanos(program))
        result = nthbyte.stop()
        if not result.lost:
            return nanos, result.samples
    sys.exit(f"{program.__name__}: samples were lost in each of {TRIES} sessions; the machine is too busy")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        found = {
            program.__doc__.rstrip(".").lower(): measure(program, int(sys.argv[1]), folder)
            for program in (churn, bursts, growth, mixture)
            if program.__doc__
        }
    print(json.dumps(found))
