"""What a run of tests says of an earlier run, of repeated calls, and to other programs."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from nthbyte._pytest_outputs import annotation

pytest_plugins = ["pytester"]

SUITE = """
import os

KEPT = {}

def test_grows():
    blocks = [bytes(1 << 20) for _ in range(int(os.environ["BLOCKS"]))]

def test_stays():
    blocks = [bytes(1 << 20) for _ in range(3)]

def test_leaks():
    KEPT.setdefault("all", []).append(bytes(10_000))

def test_caches():
    KEPT.setdefault("cache", bytes(10_000))

def test_replaces():
    KEPT["last"] = bytes(10_000)

def test_runs_once():
    assert "once" not in KEPT
    KEPT["once"] = True
"""


def test_a_run_fails_if_a_test_has_grown(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makepyfile(SUITE)
    options = ["--nthbyte", "--nthbyte-every", "1", "--nthbyte-baseline", "base.json", "-k", "grows or stays"]
    monkeypatch.setenv("BLOCKS", "3")
    assert pytester.runpytest(*options).ret == pytest.ExitCode.USAGE_ERROR
    assert pytester.runpytest(*options, "--nthbyte-update-baseline").ret == 0
    monkeypatch.setenv("BLOCKS", "4")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(pytester.path.parent))
    grown = pytester.runpytest(*options, "--nthbyte-github", "--junit-xml", "out.xml", "--nthbyte-junit")
    # Not the test fails, but the run.
    grown.assert_outcomes(passed=2, deselected=4)
    assert grown.ret == pytest.ExitCode.TESTS_FAILED
    said = [line for line in grown.outlines if "has grown since the baseline" in line]
    assert len(said) == 4 and not any("test_stays" in line for line in said)
    grown.stdout.fnmatch_lines(
        ["Grown since the baseline: 2 tests compared", "nthbyte: *test_grows has grown *"]
    )
    name = pytester.path.name
    assert any(line.startswith(f"::error file={name}/{name.rstrip('0')}.py,title=nthbyte::") for line in said)
    cases = {case.get("name"): case for case in ElementTree.parse("out.xml").iter("testcase")}
    for name, mib in (("test_grows", 4), ("test_stays", 3)):
        found = {one.get("name"): int(str(one.get("value"))) for one in cases[name].iter("property")}
        assert round(found["nthbyte.peak"] / 2**20, 1) == round(found["nthbyte.peak.high"] / 2**20, 1) == mib
        assert found["nthbyte.allocated"] >= found["nthbyte.peak"] and "nthbyte.left" in found


def test_what_each_call_leaves(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE)
    run = pytester.runpytest("--nthbyte-leaks", "4", "--hide-memray-summary", "-k", "not (grows or stays)")
    run.assert_outcomes(passed=4, deselected=2)
    lines = run.outlines[run.outlines.index("Left alive by each call of a test, of 4") + 1 :]
    assert lines[0].split() == ["9.8KiB", "test_what_each_call_leaves.py::test_leaks"]
    assert lines[1].split()[:4] == ["9.8KiB", "in", "1", "blocks"] and lines[1].endswith(":12 test_leaks")
    assert lines[2].strip().startswith("held by test_what_each_call_leaves.KEPT['all'], list of 4")
    assert (
        lines[3] == "Not known of tests that do not run twice: test_what_each_call_leaves.py::test_runs_once"
    )
    # A limit is of one call.
    pytester.makepyfile(
        """
import pytest
KEPT = []
@pytest.mark.limit_leaks("1 MB")
def test_limited():
    KEPT.append(bytes(400_000))
"""
    )
    run = pytester.runpytest("--nthbyte-leaks", "4", "-k", "limited")
    run.assert_outcomes(passed=1, warnings=1)
    run.stdout.fnmatch_lines(["*calls each test several times, so no limits are judged"])


def test_an_annotation_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", "/src")
    said = annotation("/src/a,b.py", 3, "limit: all", "50 %\nof it")
    assert said == "::error file=a%2Cb.py,line=3,title=limit%3A all::50 %25%0Aof it"
