"""pprof, speedscope and collapsed stacks, each read by the program that the format is for."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import harness
from formats.installed import HERE, module, node_modules

UNITS = {"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


def export(profile: Path, to: str, out: Path) -> Path:
    """Exports a profile."""
    harness.report("export", profile, "--to", to, "-f", "-o", out, folder=out.parent).ok()
    return out


def pprof_top(go: str, file: Path, sample_type: str) -> dict[str, tuple[float, float]]:
    """Returns flat and cumulative values by function, as `go tool pprof -top` prints them."""
    words = [go, "tool", "pprof", "-top", "-nodecount=100000", "-nodefraction=0", "-unit=B"]
    done = subprocess.run(
        [*words, f"-sample_index={sample_type}", str(file)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = {}
    for line in done.stdout.splitlines():
        match = re.match(r"\s*([\d.]+)([kMG]?B)?\s+\S+%\s+\S+%\s+([\d.]+)([kMG]?B)?\s+\S+%\s+(.*)", line)
        if match:
            flat, flat_unit, total, total_unit, name = match.groups()
            value = float(flat) * UNITS.get(flat_unit, 1), float(total) * UNITS.get(total_unit, 1)
            found[name.strip()] = value
    assert found, done.stdout[:2000]
    return found


def test_go_tool_pprof_finds_the_bytes_of_the_summary(go: str, recorded: Path, tmp_path: Path) -> None:
    file = export(recorded, "pprof", tmp_path / "run.pb.gz")
    space = pprof_top(go, file, "alloc_space")
    kept = pprof_top(go, file, "inuse_space")
    expected = {row["name"]: row for row in harness.summary(recorded, "--top", "100000")["rows"]}
    for name in ("keep_all", "churn_on", "on_thread", "run_all"):
        flat, total = space[name]
        assert flat == pytest.approx(expected[name]["self_bytes"]["estimate"], rel=1e-3, abs=2000), name
        assert total == pytest.approx(expected[name]["total_bytes"]["estimate"], rel=1e-3, abs=2000), name
    everything = harness.summary(recorded)["all"]
    alive = everything["still_live"]["estimate"] + everything["survived"]["estimate"]
    assert sum(flat for flat, _ in kept.values()) == pytest.approx(alive, rel=1e-3, abs=20_000)


def test_go_tool_pprof_reads_hostile_names(go: str, hostile: Path, tmp_path: Path) -> None:
    file = export(hostile, "pprof", tmp_path / "hostile.pb.gz")
    assert any("<script>" in name for name in pprof_top(go, file, "alloc_objects"))


def speedscope(profile: Path, folder: Path) -> Any:
    """Returns a profile as speedscope's JSON, checked against its schema."""
    file = export(profile, "speedscope", folder / "run.speedscope.json")
    schema = json.loads(node_modules("speedscope/dist/release/file-format-schema.json").read_text())
    content = json.loads(file.read_text())
    module("jsonschema").validate(content, schema)
    return content


def opened(content: Any, node: str, folder: Path) -> None:
    """Checks that speedscope itself opens the profile that `speedscope` wrote."""
    node_modules("playwright-core")
    page = node_modules("speedscope/dist/release/index.html")
    words = [node, str(HERE / "speedscope.mjs"), str(page), str(folder / "run.speedscope.json")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    seen = json.loads(done.stdout)
    # speedscope puts the name of the file into the title. The browser has its own way with control characters there.
    shown, name = (
        "".join(filter(str.isprintable, text)).replace(" ", "") for text in (seen["title"], content["name"])
    )
    assert shown == f"{name}-speedscope"
    assert seen["errors"] == []


def test_speedscope_opens_a_real_run(recorded: Path, node: str, tmp_path: Path) -> None:
    opened(speedscope(recorded, tmp_path), node, tmp_path)


def test_speedscope_opens_hostile_names(hostile: Path, node: str, tmp_path: Path) -> None:
    opened(speedscope(hostile, tmp_path), node, tmp_path)


def test_speedscope_has_the_bytes_of_the_summary(recorded: Path, tmp_path: Path) -> None:
    content = speedscope(recorded, tmp_path)
    frames = content["shared"]["frames"]
    own: dict[str, float] = {}
    for profile in content["profiles"]:
        if profile["name"].endswith(": allocated"):
            for stack, weight in zip(profile["samples"], profile["weights"]):
                name = frames[stack[-1]]["name"]
                own[name] = own.get(name, 0) + weight
    expected = {row["name"]: row for row in harness.summary(recorded, "--top", "100000")["rows"]}
    for name in ("keep_all", "churn_on"):
        assert own[name] == pytest.approx(expected[name]["self_bytes"]["estimate"], rel=1e-4, abs=2000)


def test_collapsed_stacks_are_those_of_the_program(recorded: Path, tmp_path: Path) -> None:
    text = export(recorded, "collapsed", tmp_path / "run.txt").read_text()
    keep = [line for line in text.splitlines() if re.search(r";keep_all \(.*program\.py:\d+\) \d+$", line)]
    assert keep
    assert all(re.search(r"run_all \(.*program\.py:\d+\);keep_all ", line) for line in keep)
    whole = sum(int(line.rsplit(" ", 1)[1]) for line in text.splitlines())
    assert whole == pytest.approx(harness.summary(recorded)["all"]["bytes"]["estimate"], rel=1e-4)
