"""Functions of very different weight: each keeps a part of what it makes, and each has a line of its own."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable

NUMBER = 36
SOURCE = """
def kind_{n}(count, kept):
    for number in range(count):
        one = make_{n}(number)
        if number % {every} == 0:
            kept.append(one)


def make_{n}(number):
    return {what}
"""
WHATS = (
    "bytes({size} + number % 7)",
    "[number] * ({size} // 8)",
    "{{number: str(number), -number: b'x' * {size}}}",
    "'x' * {size} + str(number)",
)


@functools.cache
def kinds(file: str = "kinds_made.py") -> list[Callable[[int, list[object]], None]]:
    """The functions. A file name of their own shows them as one file."""
    text = "".join(
        SOURCE.format(n=n, every=1 + n % 5, what=WHATS[n % len(WHATS)].format(size=40 + 23 * n))
        for n in range(NUMBER)
    )
    module = types.ModuleType("kinds_made")
    exec(compile(text, file, "exec"), vars(module))
    return [vars(module)[f"kind_{n}"] for n in range(NUMBER)]


def work(scale: float, kept: list[object], turn: int = 0) -> None:
    """Calls each function; its weight is another one in each turn, from 1 to 300."""
    for n, kind in enumerate(kinds()):
        weight = 1.18 ** ((n * 7 + turn * 5) % NUMBER)
        kind(max(1, int(scale * weight)), kept)
