"""Measures what it costs to enter and leave a label, in nanoseconds. Run it with each interpreter, nthbyte installed.

CPU time: the least of many short rounds, less an empty loop's. Prints a line for docs/performance.md.
"""

from __future__ import annotations

import contextvars
import platform
import time
from typing import Callable

import nthbyte

TIMES = 2_000
ROUNDS = 500
variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
known = nthbyte.label(endpoint="/checkout")


def nothing() -> None:
    for _ in range(TIMES):
        pass


def set_and_reset() -> None:
    set_value, reset = variable.set, variable.reset
    for _ in range(TIMES):
        reset(set_value(1))


def entered() -> None:
    for _ in range(TIMES):
        with known:
            pass


def made_and_entered() -> None:
    label = nthbyte.label
    for _ in range(TIMES):
        with label(endpoint="/checkout"):
            pass


def seconds(work: Callable[[], None]) -> float:
    begin = time.thread_time()
    work()
    return time.thread_time() - begin


def main() -> None:
    measured = (set_and_reset, entered, made_and_entered)
    least = dict.fromkeys((nothing, *measured), float("inf"))
    for _ in range(ROUNDS):
        for work in least:
            least[work] = min(least[work], seconds(work))
    cells = [f"{(least[work] - least[nothing]) / TIMES * 1e9:.0f}" for work in measured]
    version = f"{platform.python_implementation()} {platform.python_version()}"
    print(f"| {' | '.join([version, *cells])} |")


if __name__ == "__main__":
    main()
