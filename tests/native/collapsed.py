"""Stacks of profiles, read from the export of collapsed stacks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from harness import report

# Bytes or time samples of each stack, outermost frame first, by the names of functions.
Stacks = Counter[tuple[str, ...]]


def collapsed(folder: Path, *options: str, name: str = "out.nthb") -> Stacks:
    """The stacks of a profile, with the options of ``export``. A frame is a function without its place."""
    words = ["export", name, "--to", "collapsed", "-f", "-o", "out.txt", *options]
    report(*words, folder=folder).ok()
    stacks: Stacks = Counter()
    for line in (folder / "out.txt").read_text().splitlines():
        frames, _, number = line.rpartition(" ")
        stacks[tuple(frame.rpartition(" (")[0] or frame for frame in frames.split(";"))] += int(number)
    return stacks


def is_within(stack: tuple[str, ...], *names: str) -> bool:
    """Whether these names are in the stack in this order."""
    frames = iter(stack)
    return all(any(frame == name for frame in frames) for name in names)
