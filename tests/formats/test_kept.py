"""Profiles that earlier versions have written: each format that was released stays readable.

``kept/version-1.nthb`` records every allocation of ``kept/version_1.py``, so its figures are exact, and must be the
same for ever. A new version of the format adds a file, and changes none; until the first release, this one may be
made anew.
"""

from __future__ import annotations

from pathlib import Path

from harness import report, summary

PROFILE = Path(__file__).parent / "kept" / "version-1.nthb"


def _figures(figure: str, *options: str) -> dict[str, int]:
    return {row["name"]: row[figure]["estimate"] for row in summary(PROFILE, *options)["rows"]}


def test_figures_of_version_1() -> None:
    whole = summary(PROFILE)
    [process] = whole["processes"]
    assert (process["complete"], whole["samples"], whole["lost"]) == (True, 2706, 0)
    assert whole["bytes_allocated"] == 396_605
    functions = _figures("self_bytes")
    assert (functions["freed"], functions["Node.__init__"]) == (55_371, 33_376)
    alive = _figures("alive", "--by", "type", "--at", "end")
    assert (alive["bytes"], alive["instance attributes"], alive["Node"]) == (66_122, 7_424, 5_600)
    native = _figures("alive", "--by", "type", "--domain", "native")
    assert native["malloc"] == 150_032
    assert _figures("self_bytes", "--by", "label:part")["first"] == 49_320
    assert _figures("self_bytes", "--thread", "worker")["blobs.<locals>.<listcomp>"] == 62_092


def test_reports_of_version_1(tmp_path: Path) -> None:
    said = {}
    for name in ("summary", "tree", "memory", "explain", "holders", "leaks"):
        done = report(name, PROFILE, folder=tmp_path).ok()
        assert "damage" not in done.out + done.err and "newer nthbyte" not in done.out + done.err, name
        said[name] = done.out
    assert "kept[*]" in said["holders"]
