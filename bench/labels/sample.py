"""Measures what reading a label costs a sample, in nanoseconds of CPU time: with every allocation sampled.

    nthbyte run --every 1 -f -o /tmp/p.nthb bench/labels/sample.py

A loop allocates objects, each of which is a sample. It runs before the first label of the process, so that samples look
for none; then, in turns, outside of a label and inside of one. The least of each, and the difference, a sample.
"""

from __future__ import annotations

import platform
import time
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any

TIMES = 1_000
ROUNDS = 600


def allocate() -> None:
    make = object
    for _ in range(TIMES):
        make()


def nanoseconds(inside: Any) -> float:
    """The CPU time of this thread for an object."""
    with inside:
        begin = time.thread_time_ns()
        allocate()
        return (time.thread_time_ns() - begin) / TIMES


def main() -> None:
    before = [nanoseconds(nullcontext()) for _ in range(ROUNDS)]
    import nthbyte

    label = nthbyte.label(endpoint="/checkout")
    outside, inside, among_many = [], [], []
    for _ in range(ROUNDS):
        outside.append(nanoseconds(nullcontext()))
        inside.append(nanoseconds(label))
    # A web service's context has variables of its own.
    others: list[ContextVar[int]] = [ContextVar(f"other {number}") for number in range(12)]
    for other in others:
        other.set(1)
    for _ in range(ROUNDS):
        among_many.append(nanoseconds(label))
    least = [min(times) for times in (before, outside, inside, among_many)]
    cells = [f"{least[0]:.0f}", *(f"{one - least[0]:+.1f}" for one in least[1:])]
    print(f"| {platform.python_implementation()} {platform.python_version()} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
