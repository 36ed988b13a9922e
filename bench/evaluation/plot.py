"""Plots as SVG, readable on light and dark pages.

Three kinds: ``lines`` over evenly spaced ticks, horizontal ``bars`` in groups, and ``intervals`` with the true value in
each. The colours are Okabe and Ito's, which people with any kind of colour vision tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#a6761d", "#6a3d9a")
WIDTH = 760
# Each picture has its own background, whatever the page's is.
_STYLE = """<style>
.back{fill:#fff}.text{fill:#222}.faint{fill:#666}.line{stroke:#ddd}.axis{stroke:#888}
@media(prefers-color-scheme:dark){.back{fill:#1c1f24}.text{fill:#e6e6e6}.faint{fill:#aaa}.line{stroke:#3a3f47}.axis{stroke:#888}}
</style>"""


def lines(
    title: str,
    ticks: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    unit: str = "",
    low: float | None = None,
    logarithmic: bool = False,
) -> str:
    """Lines over evenly spaced ticks. A value that is None is left out."""
    height, left, right, top, bottom = 380, 70, 180, 46, 46
    values = [value for those in series.values() for value in those if value is not None]
    axis = _Axis.of(values, low, logarithmic)

    def x(index: int) -> float:
        return left + (WIDTH - left - right) * index / max(1, len(ticks) - 1)

    def y(value: float) -> float:
        return height - bottom - (height - bottom - top) * axis.place(value)

    parts = [_line(left, WIDTH - right, y(mark), y(mark)) for mark in axis.marks]
    parts += [_text(left - 8, y(mark) + 4, f"{_number(mark)}{unit}", "end", "faint") for mark in axis.marks]
    parts += [
        _text(x(index), height - bottom + 20, tick, "middle", "faint") for index, tick in enumerate(ticks)
    ]
    labels = []
    for number, (label, those) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = [(x(index), y(value)) for index, value in enumerate(those) if value is not None]
        if not points:
            continue
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in points]
        labels.append((points[-1][1], label, colour))
    # Labels stand beside the ends of their lines, but not one upon another.
    place = -math.inf
    for end, label, colour in sorted(labels):
        place = max(place + 15, end)
        parts.append(_text(WIDTH - right + 12, place + 4, label, "start", "text", colour))
    return _svg(title, height, parts)


def bars(title: str, groups: Mapping[str, Mapping[str, float]], unit: str = "", base: float = 0) -> str:
    """Horizontal bars, in groups. The first name of a bar has the same colour in each group."""
    names = list(dict.fromkeys(name for those in groups.values() for name in those))
    left, right, top = 170, 90, 46 + 18 * math.ceil(len(names) / 4)
    row, gap = 15, 12
    values = [value for those in groups.values() for value in those.values()]
    largest = max([*values, base + 1e-9])
    height = top + sum(row * len(those) + gap for those in groups.values()) + 20

    def x(value: float) -> float:
        return left + (WIDTH - left - right) * (value - base) / (largest - base)

    parts = []
    for number, name in enumerate(names):
        column, line = number % 4, number // 4
        at = 20 + column * (WIDTH - 40) / 4
        parts.append(
            f'<rect x="{at:.0f}" y="{40 + 18 * line}" width="10" height="10" fill="{COLOURS[number % len(COLOURS)]}"/>'
        )
        parts.append(_text(at + 15, 49 + 18 * line, name, "start", "text"))
    y = float(top + 10)
    for group, those in groups.items():
        parts.append(_text(left - 10, y + row * len(those) / 2 + 4, group, "end", "text"))
        for name, value in those.items():
            colour = COLOURS[names.index(name) % len(COLOURS)]
            one, other = sorted((x(max(base, 0) if base == 0 else base), x(value)))
            parts.append(
                f'<rect x="{one:.1f}" y="{y + 1:.1f}" width="{max(1, other - one):.1f}" height="{row - 3}" fill="{colour}"/>'
            )
            parts.append(_text(other + 5, y + row - 4, f"{_number(value)}{unit}", "start", "faint"))
            y += row
        y += gap
    return _svg(title, round(height), parts)


def intervals(title: str, rows: Sequence[tuple[str, float, float, float, float]], unit: str = "") -> str:
    """Estimates with their intervals, and the true values as marks: name, low, estimate, high, truth."""
    left, right, top, row = 250, 40, 46, 24
    height = top + row * len(rows) + 40
    largest = max(max(high, truth) for _, _, _, high, truth in rows)
    axis = _Axis.of([0, largest], 0, False)

    def x(value: float) -> float:
        return left + (WIDTH - left - right) * axis.place(value)

    parts = []
    for mark in axis.marks:
        parts.append(_line(x(mark), x(mark), top, height - 30))
        parts.append(_text(x(mark), height - 12, f"{_number(mark)}{unit}", "middle", "faint"))
    for number, (name, low, estimate, high, truth) in enumerate(rows):
        y = top + row * (number + 0.5)
        parts.append(_text(left - 10, y + 4, name, "end", "text"))
        parts.append(
            f'<line x1="{x(low):.1f}" x2="{x(high):.1f}" y1="{y}" y2="{y}" stroke="{COLOURS[0]}" stroke-width="3"/>'
        )
        parts.append(f'<circle cx="{x(estimate):.1f}" cy="{y}" r="4" fill="{COLOURS[0]}"/>')
        parts.append(
            f'<line x1="{x(truth):.1f}" x2="{x(truth):.1f}" y1="{y - 8}" y2="{y + 8}" stroke="{COLOURS[1]}" stroke-width="2"/>'
        )
    return _svg(title, height, parts)


class _Axis:
    """The range of an axis, and the places of its marks."""

    def __init__(self, low: float, high: float, marks: list[float], logarithmic: bool) -> None:
        self.low, self.high, self.marks, self.logarithmic = low, high, marks, logarithmic

    @classmethod
    def of(cls, values: Sequence[float], low: float | None, logarithmic: bool) -> _Axis:
        least, most = min(values), max(values)
        if logarithmic:
            first, last = math.floor(math.log10(least)), math.ceil(math.log10(most))
            last = max(last, first + 1)
            return cls(10.0**first, 10.0**last, [10.0**power for power in range(first, last + 1)], True)
        least = least if low is None else min(low, least)
        span = max(most - least, 1e-9)
        step = 10 ** math.floor(math.log10(span))
        step = next(step * part for part in (0.1, 0.2, 0.5, 1, 2) if span / (step * part) <= 8)
        first, last = math.floor(least / step + 1e-9), math.ceil(most / step - 1e-9)
        marks = [round(step * number, 9) for number in range(first, last + 1)]
        return cls(marks[0], max(marks[-1], marks[0] + step), marks, False)

    def place(self, value: float) -> float:
        """From 0 to 1."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.3g}" if value < 10 else f"{value:.4g}"
    return "0" if float(text) == 0 else text


def _line(x1: float, x2: float, y1: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" class="line"/>'


def _text(x: float, y: float, text: str, anchor: str, kind: str, colour: str = "") -> str:
    fill = f' style="fill:{colour}"' if colour else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}"{fill}>{escape(text)}</text>'


def _svg(title: str, height: int, parts: Sequence[str]) -> str:
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12"'
        f' role="img" aria-label="{escape(title)}">',
        _STYLE,
        f'<rect class="back" width="{WIDTH}" height="{height}" rx="6"/>',
        f'<text x="20" y="26" font-size="15" class="text">{escape(title)}</text>',
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"
