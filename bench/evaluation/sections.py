"""What the pages show between their marks: figures that are made of raw results."""

from __future__ import annotations

from collections.abc import Callable
from statistics import geometric_mean

from evaluation.experiments import exactness, overhead, peers
from evaluation.results import Result

Found = dict[str, "Result | None"]


def _overhead(found: Found) -> list[str] | None:
    """The table of real programs."""
    result = found["overhead"]
    return overhead.lines(result.raw) if result and result.raw else None


def _exactness(found: Found) -> list[str] | None:
    """The table of estimates and exact values."""
    result = found["exactness"]
    return exactness.lines(result.raw) if result and result.raw else None


def _readme(found: Found) -> list[str] | None:
    """A sentence for each of the experiments that the README shows, and its picture."""
    lines: list[str] = []
    result = found["overhead"]
    if result and result.raw:
        rows = overhead.rows(result.raw).values()
        cpu, peak = (geometric_mean(row[column] for row in rows) for column in ("512KiB", "rss 512KiB"))
        worst = max(row["512KiB"] for row in rows)
        lines += [
            f"{len(rows)} real programs on {result.raw['interpreter']} take {cpu:.2f} of the CPU time without nthbyte (worst {worst:.2f}), and",
            f"{peak:.2f} of the memory, at the default period.",
            "",
        ]
    result = found["peers"]
    if result and result.raw:
        tools = peers.by_tool(result.raw)
        costs = ", ".join(f"{name} {each['cpu']:.2f}" for name, each in tools.items())
        lines += [
            f"CPU time over plain, with other tools on {len(result.raw['programs'])} of these programs: {costs}.",
            "",
            "![CPU time and peak RSS with nthbyte and other tools](docs/measurements/peers.svg)",
            "",
        ]
    if found["exactness"]:
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
    "exactness": _exactness,
    "readme": _readme,
}
