"""Periods, byte counts and tables as text."""

from __future__ import annotations

UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def period(size: int) -> str:
    """``512KiB``, as ``--every`` takes it."""
    for unit, factor in reversed(UNITS.items()):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"


def spaced(size: int) -> str:
    """``512 KiB``"""
    return spaced_word(period(size))


def spaced_word(word: str) -> str:
    """``512 KiB`` of ``512KiB``."""
    return word[:-3] + " " + word[-3:] if word[-3:] in UNITS else word


def bytes_text(size: float) -> str:
    """Three digits and a unit."""
    for unit, factor in reversed(UNITS.items()):
        if size >= factor:
            return f"{size / factor:.3g} {unit}" if size / factor < 1000 else f"{size / factor:,.0f} {unit}"
    return f"{size:.0f} B"


def mean_and_worst(mean: float, worst: float) -> str:
    """``0.962 (worst 1.11)``, of ratios."""
    return f"{mean:.3f} (worst {worst:.2f})"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]
