"""What holds of every family of profiles: its one answer is the sum of the parts'."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import harness


def parts_of(first: Path) -> list[Path]:
    """Returns the files of a family in a folder that has nothing else."""
    return [first, *sorted(first.parent.glob(f"{first.stem}.*{first.suffix}"))]


def check(first: Path) -> Any:
    """Checks that the answer for all is the sum of those for the parts; returns it."""
    parts = [harness.summary(path) for path in parts_of(first)]
    whole = harness.summary(first, "--all")
    pids = {part["pid"] for part in parts}
    assert {process["pid"] for process in whole["processes"]} == pids
    assert len(whole["processes"]) == len(parts)
    assert whole["pid"] == parts[0]["pid"] == whole["processes"][0]["pid"]

    def total(of: Any) -> Any:
        return pytest.approx(sum(of(part) for part in parts), rel=1e-9)

    for name in ("samples", "lost", "lost_other"):
        assert whole[name] == total(lambda part, name=name: part[name]), name
    for name in whole["all"]:
        assert whole["all"][name]["estimate"] == total(lambda part, name=name: part["all"][name]["estimate"])
    assert whole["collections"]["count"] == total(lambda part: part["collections"]["count"])
    if whole["bytes_counted"]:
        assert whole["bytes_allocated"] == total(lambda part: part["bytes_allocated"])
    for by in ("function", "line", "file", "type", "process"):
        expected = _rows([harness.summary(path, "--by", by) for path in parts_of(first)])
        assert _rows([harness.summary(first, "--all", "--by", by)]) == pytest.approx(expected, rel=1e-9)
    _check_merged(first, whole)
    # Exports have native memory, too.
    everything = [harness.summary(path, "--domain", "all") for path in parts_of(first)]
    _check_exports(first, {part["pid"] for part in everything if part["samples"]}, pids)
    return whole


def _rows(summaries: list[Any]) -> dict[tuple[str, str, int], float]:
    rows: dict[tuple[str, str, int], float] = {}
    for summary in summaries:
        for row in summary["rows"]:
            key = (row["name"], row["file"], row["line"])
            rows[key] = rows.get(key, 0.0) + row["self_bytes"]["estimate"]
    return rows


def _check_merged(first: Path, whole: Any) -> None:
    merged = first.parent / "merged" / "all.nthb"
    merged.parent.mkdir()
    harness.report("merge", first, "-f", "-o", merged, folder=first.parent).ok()
    assert merged.stat().st_mode & 0o777 == 0o600
    assert harness.summary(merged) == whole
    for words in (["tree"], ["tree", "--by", "process"], ["export", "--to", "collapsed", "-o", "-"]):
        shown = [
            harness.report(*words, *paths, folder=first.parent).ok().out
            for paths in ([first], [*parts_of(first), "--all"], [merged])
        ]
        assert shown[0] == shown[1] == shown[2] != ""


def _check_exports(first: Path, sampled: set[int], pids: set[int]) -> None:
    folder = first.parent / "merged"
    for words in (
        ["export", "--to", "pprof", "-f"],
        ["export", "--to", "speedscope", "-f"],
        ["flamegraph", "-f"],
    ):
        harness.report(*words, first, folder=folder).ok()
    found = harness.firefox(folder / "all.nthb")
    with_samples = {int(thread["pid"]) for thread in found["threads"] if thread["samples"]["length"]}
    assert with_samples == sampled
    assert {int(counter["pid"]) for counter in found["counters"]} <= pids
