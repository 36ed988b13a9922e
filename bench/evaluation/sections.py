"""What the pages show between their marks: figures that are made of raw results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evaluation.experiment import INCOMPLETE, Raw
from evaluation.experiments import (
    case_studies,
    exactness,
    large_pages,
    native_memory,
    native_work,
    overhead,
    peers,
    period,
    period_by_itself,
)
from evaluation.results import Result
from evaluation.words import mean_and_worst, table

Found = dict[str, "Result | None"]


def _complete(found: Found, name: str) -> Raw | None:
    """A raw result, if all of it was measured: a part of the programs has another mean."""
    result = found[name]
    return result.raw if result and INCOMPLETE not in result.notes else None


def _page_of(module: Any) -> Callable[[Found], list[str] | None]:
    """The lines of an experiment, as its own page has them."""

    def section(found: Found) -> list[str] | None:
        raw = _complete(found, module.EXPERIMENT.name)
        return list(module.lines(raw)) if raw else None

    return section


def _case_studies(found: Found) -> list[str] | None:
    """The table of the two packages."""
    raw = _complete(found, "case-studies")
    return case_studies.rows(raw) if raw else None


def _overhead(found: Found) -> list[str] | None:
    """The means on each interpreter, without the programs."""
    raw = _complete(found, "overhead")
    return overhead.means(raw) if raw else None


def _mean_and_worst(rows: dict[str, dict[str, float]], column: str) -> str:
    return mean_and_worst(overhead.mean(rows, column), overhead.worst(rows, column))


def _readme(found: Found) -> list[str] | None:
    """A sentence for each of the experiments that the README shows, and its picture."""
    lines: list[str] = []
    rows = []
    if raw := _complete(found, "auto"):
        rows.append(["Python objects", *period_by_itself.overview(raw)])
    if raw := _complete(found, "native-work"):
        rows += [["native memory", *row] for row in native_work.means(raw)]
    if rows:
        lines += [
            "At the default settings, the geometric mean of the programs' CPU time. Those of *Python objects* are real programs; those of *native memory* do",
            "little but take memory from native code: arrays of NumPy, images, tables, reads of files.",
            "",
            *table(["what they allocate", "interpreter", "programs", "CPU time"], rows),
            "",
        ]
    if raw := _complete(found, "overhead"):
        those = {name: overhead.rows(one) for name, one in raw["interpreters"].items()}
        lines += [
            "The same real programs on each interpreter, at a period of 512 KiB.",
            "",
            *table(
                ["interpreter", "programs", "CPU time", "peak RSS"],
                [
                    [name, f"{len(rows)}", *(_mean_and_worst(rows, one) for one in ("512KiB", "rss 512KiB"))]
                    for name, rows in those.items()
                ],
            ),
            "",
        ]
    if raw := _complete(found, "peers"):
        tools = peers.by_tool(raw)
        lines += [
            f"Other tools on {len(raw['programs'])} of these programs, over plain; and how many of the ten functions that allocate most are among",
            "the ten that each of them names.",
            "",
            *table(
                ["tool", "CPU time", "peak RSS", "of the true ten"],
                [
                    [name, f"{each['cpu']:.2f}", f"{each['rss']:.2f}", peers.hits_text(each)]
                    for name, each in tools.items()
                ],
            ),
            "",
            "![CPU time and peak RSS with nthbyte and other tools](docs/measurements/peers.svg)",
            "",
        ]
    if _complete(found, "exactness"):
        lines += [
            "![estimates with their intervals, and the exact values](docs/measurements/exactness.svg)",
            "",
        ]
    return (
        [*lines, "[docs/evaluation.md](docs/evaluation.md) has all measurements, and how they are made."]
        if lines
        else None
    )


SECTIONS: dict[str, Callable[[Found], list[str] | None]] = {
    "overhead": _overhead,
    "native-memory": _page_of(native_memory),
    "period": _page_of(period),
    "exactness": _page_of(exactness),
    "large-pages": _page_of(large_pages),
    "case-studies": _case_studies,
    "readme": _readme,
}
