"""The Firefox Profiler's own engine reads exports of real runs, and finds the same figures."""

from __future__ import annotations

import gzip
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import harness
from formats.engine import Engine

# Linux's number: Python has no name for it.
CLOCK_MONOTONIC_COARSE = 6

FATES = ("died young", "freed later", "survived", "still live")


def allocations(engine: Engine) -> list[str]:
    """Returns the handles of the tracks of allocations."""
    return [handle for name, handle in engine.threads().items() if name.startswith("Alloc · ")]


def rows(profile: Path, by: str) -> list[dict[str, Any]]:
    """Returns all rows of a summary."""
    return list(harness.summary(profile, "--by", by, "--top", "100000")["rows"])


def test_functions_have_the_bytes_of_the_summary(loaded: Engine, recorded: Path) -> None:
    expected: dict[str, float] = {}
    for row in rows(recorded, "function"):
        expected[row["name"]] = expected.get(row["name"], 0) + row["total_bytes"]["estimate"]
    found: dict[str, float] = {}
    for thread in allocations(loaded):
        for function in loaded.functions(thread):
            name = function["name"]
            found[name] = found.get(name, 0) + function["totalSamples"]
    for name in ("run_all", "keep_all", "churn_on", "on_thread", "make_cycles"):
        # None of these functions is recursive.
        assert found[name] == pytest.approx(expected[name], rel=1e-4, abs=2000), name
    assert found["keep_all"] > 1e6
    assert found["churn_on"] > 1e6


def test_the_compare_view_weighs_both_sides_equally(tmp_path: Path) -> None:
    # It multiplies the bytes of each profile by the profile's interval.
    intervals = set()
    for number in (20_000, 600_000):
        profile = tmp_path / f"{number}.nthb"
        code = f"kept = [[n] for n in range({number})]"
        words = [sys.executable, str(harness.SCRIPT), "run", "-q", "-o", str(profile), "-c", code]
        harness.run(words, tmp_path).ok()
        intervals.add(harness.firefox(profile)["meta"]["interval"])
    assert len(intervals) == 1


def test_types_have_the_bytes_of_the_summary(loaded: Engine, recorded: Path) -> None:
    found: dict[str, float] = {}
    for thread in allocations(loaded):
        for function in loaded.functions(thread):
            kind, _, fate = function["name"].rpartition(" (")
            if fate.rstrip(")") in FATES:
                found[kind] = found.get(kind, 0) + function["selfSamples"]
    expected: dict[str, float] = {}
    for row in rows(recorded, "type"):
        expected[row["name"]] = expected.get(row["name"], 0) + row["self_bytes"]["estimate"]
    # Unknown types have another name in the summary.
    known = expected.keys() & found.keys()
    assert len(known) > 4
    for name in known:
        assert found[name] == pytest.approx(expected[name], rel=1e-4, abs=2000), name
    assert sum(found.values()) == pytest.approx(
        harness.summary(recorded)["all"]["bytes"]["estimate"], rel=1e-4, abs=2000
    )


def test_retained_memory_is_what_is_known_to_be_alive(
    loaded: Engine, interpreter: harness.Interpreter, recorded: Path
) -> None:
    # Nobody knows which of PyPy's objects are alive, except for those at the very end.
    expected = 0.0 if interpreter.is_pypy else harness.summary(recorded)["all"]["still_live"]["estimate"]
    retained = 0.0
    for thread in allocations(loaded):
        loaded.ask("thread", "select", thread)
        info = loaded.ask("thread", "info")
        if "native-retained-allocations" in info["availableStrategies"]:
            functions = loaded.functions(thread, "--strategy", "native-retained-allocations")
            retained += sum(one["selfSamples"] for one in functions)
    assert retained == pytest.approx(expected, rel=1e-4, abs=4000)


def test_threads_markers_counters_and_description(
    loaded: Engine, interpreter: harness.Interpreter, recorded: Path
) -> None:
    names = set(loaded.threads())
    assert any("the-worker" in name for name in names) or interpreter.is_pypy, names
    assert any(name.startswith("Alloc · ") for name in names)
    assert any(name.startswith("CPU · ") for name in names), names
    info = loaded.ask("profile", "info")
    counters = {one["label"]: one for process in info["processes"] for one in process.get("counters", [])}
    assert {"Heap used", "RSS"} & set(counters), counters
    assert all(counter["unit"] == "bytes" for counter in counters.values())
    markers = 0
    for thread in loaded.threads().values():
        loaded.ask("thread", "select", thread)
        kinds = loaded.ask("thread", "markers")["byType"]
        # The summary counts the steps of a major collection. The whole major collection has its own marker.
        # PyPy's compiler has markers, too.
        collections = [kind for kind in kinds if "ollection" in kind["markerName"]]
        markers += sum(kind["count"] for kind in collections if kind["markerName"] != "Major collection")
    assert markers == harness.summary(recorded)["collections"]["count"]
    meta = loaded.ask("profile", "meta")
    told = {entry["label"]: entry["value"] for section in meta["extra"] for entry in section["entries"]}
    assert told["Command"].split()[0].endswith("program.py")
    assert told["Allocation samples"] == harness.samples(recorded)
    assert "64 KiB" in told["Period"]
    version = ".".join(map(str, interpreter.about[1]))
    assert version in told["Interpreter"]


def test_memory_tracks_have_the_sizes_themselves(interpreter: harness.Interpreter, recorded: Path) -> None:
    file = harness.firefox(recorded)
    counters = {counter["name"]: counter["samples"] for counter in file["counters"]}
    # The page sets the first row to zero.
    assert max(counters["RSS"]["number"][1:]) == harness.summary(recorded)["peak_rss"]
    for samples in counters.values():
        changes = [after - before for before, after in itertools.pairwise(samples["number"])]
        assert samples["count"][1:] == changes
    minors = [
        data for thread in file["threads"] for data in thread["markers"]["data"] if data["type"] == "GcMinor"
    ]
    assert bool(minors) == interpreter.is_pypy
    # The agent finds the totals in the first moments of a session.
    assert sum("survived" in data for data in minors) >= 0.9 * len(minors)
    assert len(counters["Heap used"]["number"]) > 0.9 * len(minors)


def test_the_rate_of_time_samples_is_the_kernels(interpreter: harness.Interpreter, tmp_path: Path) -> None:
    profile = tmp_path / "out.nthb"
    code = "import time\nwhile time.process_time() < 0.5: sum(range(1000))"
    words = ["run", "-q", "-o", str(profile), "--cpu", "10000", "-c", code]
    interpreter.nthbyte(*words, folder=tmp_path).ok()
    kernel = time.clock_getres(CLOCK_MONOTONIC_COARSE)
    assert harness.firefox(profile)["meta"]["interval"] == pytest.approx(1000 * max(kernel, 1 / 10_000))


def test_the_source_view_has_the_program(loaded: Engine) -> None:
    keep = next(
        function
        for thread in allocations(loaded)
        for function in loaded.functions(thread)
        if function["name"] == "keep_all"
    )
    answer = json.dumps(loaded.ask("function", "annotate", keep["functionHandle"], "--context", "file"))
    assert "store.append([bytearray(3000)" in answer


def test_hostile_names_are_unchanged(engine: Engine, hostile: Path, tmp_path: Path) -> None:
    out = tmp_path / "hostile.json"
    harness.report("export", hostile, "--to", "firefox", "-f", "-o", out, folder=tmp_path).ok()
    strings = set(json.loads(out.read_text())["shared"]["stringArray"])
    assert any("<script>" in text for text in strings)
    assert any(len(text) >= 10_000 for text in strings)
    engine.load(out)
    names = {one["name"] for thread in allocations(engine) for one in engine.functions(thread)}
    assert {name for name in names if "<script>" in name}
    assert names <= strings


def test_a_file_name_that_ends_in_gz_is_compressed(hostile: Path, tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.json", tmp_path / "a.json.gz"
    for out in (plain, packed):
        harness.report("export", hostile, "--to", "firefox", "-f", "-o", out, folder=tmp_path).ok()
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
