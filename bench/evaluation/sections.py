"""What the pages show between their marks: figures that are made of raw results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evaluation.experiment import INCOMPLETE, Raw
from evaluation.experiments import (
    case_studies,
    exactness,
    holders,
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


def _mean_and_worst(rows: dict[str, dict[str, float]], column: str) -> str:
    return mean_and_worst(overhead.mean(rows, column), overhead.worst(rows, column))


def _readme(found: Found) -> list[str] | None:
    """What the README says of cost and exactness."""
    rows = []
    if raw := _complete(found, "auto"):
        rows.append(["Python objects", *period_by_itself.overview(raw)])
    if raw := _complete(found, "native-work"):
        rows += [["native memory", *row] for row in native_work.means(raw)]
    lines = []
    if rows:
        lines += [*table(["what they allocate", "interpreter", "programs", "CPU time"], rows), ""]
    if raw := _complete(found, "overhead"):
        name, first = next(iter(raw["interpreters"].items()))
        lines += [
            f"- *Peak RSS*: {_mean_and_worst(overhead.rows(first), 'rss 512KiB')} with {name}, at a period of 512 KiB."
            " [Each interpreter and program](docs/evaluation.md#real-programs-on-cpython).",
        ]
    if raw := _complete(found, "peers"):
        tools = peers.by_tool(raw)
        named = [
            f"{name.partition(',')[0]} {peers.hits_text(each)} at {each['cpu']:.2f}"
            for name, each in tools.items()
            if name not in ("nthbyte 32 KiB", "memray, Python allocators", "tracemalloc, 25 frames")
        ]
        lines += [
            f"- *Other tools*, on {len(raw['programs'])} of the programs: how many of the ten functions that allocate most they name among their first"
            f" ten, at what CPU time: {' · '.join(named)}. [More](docs/evaluation.md#other-tools).",
        ]
    return lines or None


SECTIONS: dict[str, Callable[[Found], list[str] | None]] = {
    "native-memory": _page_of(native_memory),
    "period": _page_of(period),
    "exactness": _page_of(exactness),
    "holders": _page_of(holders),
    "large-pages": _page_of(large_pages),
    "case-studies": _case_studies,
    "readme": _readme,
}
