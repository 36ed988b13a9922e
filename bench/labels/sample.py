"""Measures what reading a label costs a sample, in nanoseconds of CPU time: with every allocation sampled.

    nthbyte run --every 1 -f -o /tmp/p.nthb bench/labels/sample.py

A loop allocates objects, each of which is a sample. There are eight loops, because a sample's stack may lie far from
its place in a table of the recorder, which takes longer than the measured work. They run before the first label of the
process, so that samples look for none; then, in turns, outside of a label and inside of one. Prints a line for
docs/performance.md: the least before, and how much more the least of the others is.
"""

from __future__ import annotations

import platform
import time
from contextlib import nullcontext
from contextvars import ContextVar
from types import FunctionType
from typing import Any

TIMES = 1_000
ROUNDS = 600


def allocate() -> None:
    make = object
    for _ in range(TIMES):
        make()


LOOPS = [
    FunctionType(allocate.__code__.replace(co_name=f"allocate_{number}"), globals()) for number in range(8)
]


def nanoseconds(inside: Any, turn: int) -> float:
    """The CPU time of this thread for an object."""
    loop = LOOPS[turn % len(LOOPS)]
    with inside:
        begin = time.thread_time_ns()
        loop()
        return (time.thread_time_ns() - begin) / TIMES


def main() -> None:
    before = [nanoseconds(nullcontext(), turn) for turn in range(ROUNDS)]
    import nthbyte

    label = nthbyte.label(endpoint="/checkout")
    outside, inside, among_many = [], [], []
    for turn in range(ROUNDS):
        outside.append(nanoseconds(nullcontext(), turn))
        inside.append(nanoseconds(label, turn))
    # A web service's context has variables of its own.
    others: list[ContextVar[int]] = [ContextVar(f"other {number}") for number in range(12)]
    for other in others:
        other.set(1)
    for turn in range(ROUNDS):
        among_many.append(nanoseconds(label, turn))
    least = [min(times) for times in (before, outside, inside, among_many)]
    cells = [f"{least[0]:.0f}", *(f"{one - least[0]:+.1f}" for one in least[1:])]
    print(f"| {platform.python_implementation()} {platform.python_version()} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
