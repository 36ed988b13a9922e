"""Runs a program plain and profiled in turn.

The least time of each counts: other programs on the machine only add time.
"""

from __future__ import annotations

import subprocess


def least(plain: list[str], profiled: list[str], rounds: int, folder: str) -> tuple[float, float]:
    """Returns the CPU time of a pair of calls, in nanoseconds, as each of the two commands prints it."""
    times = [(_run(plain, folder), _run(profiled, folder)) for _ in range(rounds)]
    return min(one for one, _ in times), min(other for _, other in times)


def _run(words: list[str], folder: str) -> float:
    return float(subprocess.run(words, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout)
