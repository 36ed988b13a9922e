"""Reports over folders of profiles: a fleet, by label, host and version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness import cpythons, report

PROGRAM = """
import sys
def common():
    return [bytearray(2000) for _ in range(300)]
def changed(version):
    return [bytearray(2000) for _ in range(300 if version < 42 else 900)]
for _ in range(5):
    common(), changed(int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five runs of two versions, in folders of two hosts, with what else lies there."""
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "app.py").write_text(PROGRAM)
    interpreter = cpythons()[-1]
    for host, run, version in [("a", 1, 41), ("a", 2, 42), ("b", 3, 41), ("b", 4, 42), ("b", 5, 42)]:
        (folder / "fleet" / host).mkdir(parents=True, exist_ok=True)
        profile = folder / "fleet" / host / f"web.{run}.nthb"
        tags = f"version:{version},place:{host}"
        interpreter.nthbyte(
            "run",
            "-q",
            "--no-native",
            "--holders",
            "--every=8KiB",
            f"--seed={run}",
            f"--tags={tags}",
            f"-o{profile}",
            "app.py",
            str(version),
            folder=folder,
        ).ok()
    (folder / "fleet" / "notes.txt").write_text("no profile")
    (folder / "fleet" / "empty").mkdir()
    return folder / "fleet"


def _json(*words: str | Path) -> Any:
    return json.loads(report(*words, "--json", folder=Path("/")).ok().out)


def test_a_folder_is_all_profiles_in_it(fleet: Path) -> None:
    whole = _json("summary", fleet)
    assert len(whole["processes"]) == 5
    each = [_json("summary", profile, "--alone") for profile in sorted(fleet.glob("*/*.nthb"))]
    assert whole["samples"] == sum(one["samples"] for one in each)
    # One that is named, too, counts once.
    again = _json("summary", fleet / "a", *sorted(fleet.glob("*/*.nthb")))
    assert again["samples"] == whole["samples"]
    by_version = {
        row["name"]: row["samples"] for row in _json("summary", fleet, "--by", "label:version")["rows"]
    }
    assert set(by_version) == {"41", "42"}
    newer = _json("summary", fleet, "--label", "version=42")
    assert newer["samples"] == by_version["42"]


def test_hosts_are_rows_and_labels(fleet: Path) -> None:
    host = _json("summary", fleet)["processes"][0]["host"]
    rows = _json("summary", fleet, "--by", "host")["rows"]
    assert [row["name"] for row in rows] == [host]
    on_host = _json("summary", fleet, "--label", f"host={host}")
    assert on_host["samples"] == _json("summary", fleet)["samples"]
    refused = report("summary", fleet, "--label", "host=another", folder=Path("/"))
    assert refused.status == 1 and host in refused.err


def test_versions_of_a_fleet_are_compared(fleet: Path) -> None:
    found = _json("diff", fleet, "--old-label", "version=41", "--new-label", "version=42")
    assert [found[side]["runs"] for side in ("old", "new")] == [2, 3]
    rows = {row["name"]: row["changes"]["bytes"] for row in found["rows"]}
    assert rows["changed"]["significant"] and not rows["common"]["significant"]
    # Both labels must be there, and both options.
    refused = report(
        "diff", fleet, "--old-label", "version=40", "--new-label", "version=42", folder=Path("/")
    )
    assert refused.status == 1 and "no run has the label version=40" in refused.err
    assert report("diff", fleet, "--old-label", "version=41", folder=Path("/")).status == 2
    # Two folders, as they are.
    assert report("diff", fleet / "a", "--", fleet / "b", folder=Path("/")).status == 0


def test_a_folder_without_profiles_is_said(fleet: Path) -> None:
    refused = report("summary", fleet / "empty", folder=Path("/"))
    assert (refused.status, refused.err) == (1, f"nthbyte: there is no profile in {fleet / 'empty'}\n")


@pytest.mark.parametrize("command", ["explain", "tree", "memory", "leaks", "holders"])
def test_each_report_takes_a_folder(fleet: Path, command: str) -> None:
    done = report(command, fleet, folder=Path("/"))
    assert done.status == 0 and done.out, done.err


def test_outputs_are_named_after_the_folder(fleet: Path, tmp_path: Path) -> None:
    report("flamegraph", f"{fleet}/", folder=tmp_path).ok()
    report("merge", fleet, "-o", "all.nthb", folder=tmp_path).ok()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["all.nthb", "fleet.html"]
    assert _json("summary", tmp_path / "all.nthb")["samples"] == _json("summary", fleet)["samples"]
