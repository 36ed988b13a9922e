"""The plugin for pytest: runs of small suites, as a user starts them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nthbyte._agent import COMMAND

pytest_plugins = ["pytester"]

MIB = 1 << 20

# Objects of a mebibyte each: the figures below are sums of them, and of little else.
SUITE = """
import pytest

KEPT = []
BLOCK = 1 << 20

@pytest.fixture(scope="module")
def table():
    data = [bytes(BLOCK) for _ in range(3)]
    yield data
    data.clear()

@pytest.fixture(scope="session")
def keeper():
    KEPT.append(bytes(2 * BLOCK))

@pytest.fixture
def own():
    return bytes(BLOCK)

def test_peak(own):
    blocks = [bytes(BLOCK) for _ in range(4)]

def test_churn():
    for _ in range(20):
        bytes(BLOCK)

def test_leak():
    KEPT.append(bytes(BLOCK))

def test_shared(table, keeper):
    pass

def test_shared_again(table, keeper):
    pass

def test_failing():
    assert False

@pytest.mark.skip
def test_skipped():
    pass
"""


def figures(folder: Path) -> dict[str, dict[str, Any]]:
    """The rows of `nthbyte tests --json` by the end of their names."""
    [marks] = folder.glob("*.tests.json")
    done = subprocess.run([COMMAND, "tests", str(marks), "--json"], stdout=subprocess.PIPE, check=True)
    return {row["name"].split("::")[-1].split(" of ")[0]: row for row in json.loads(done.stdout)["rows"]}


def mib(row: dict[str, Any], figure: str) -> float:
    return round(float(row[figure]["estimate"]) / MIB, 1)


@pytest.mark.parametrize(
    "workers", [[], pytest.param(["-n", "2"], marks=pytest.mark.slow)], ids=["alone", "xdist"]
)
def test_each_test_has_what_it_allocated(workers: list[str], pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE)
    run = pytester.runpytest("--nthbyte", "--nthbyte-every", "1", *workers)
    run.assert_outcomes(passed=5, failed=1, skipped=1)
    run.stdout.fnmatch_lines(
        [
            "*= nthbyte =*",
            "7 tests*",
            "Most at one time*",
            "Allocated",
            "Left alive at the end",
            "nthbyte: see more*",
        ]
    )
    rows = figures(pytester.path)
    # A fixture of one test is a part of the test.
    assert mib(rows["test_peak"], "peak") == mib(rows["test_peak"], "allocated") == 5.0
    assert mib(rows["test_peak"], "left") == 0.0
    assert (mib(rows["test_churn"], "allocated"), mib(rows["test_churn"], "peak")) == (20.0, 1.0)
    assert mib(rows["test_leak"], "left") == 1.0
    assert rows["test_leak"]["left_by"]["name"] == "test_leak"
    # What tests share is theirs in no part: a torn down fixture leaves nothing, and another one what it keeps.
    for name in ("test_shared", "test_shared_again"):
        assert mib(rows[name], "allocated") == 0.0
    assert rows["keeper"]["scope"] == "session"
    copies = len({"test_shared", "test_shared_again"}) if workers else 1
    assert mib(rows["keeper"], "left") in (2.0, 2.0 * copies)
    assert mib(rows["table"], "left") == 0.0 and mib(rows["table"], "allocated") in (3.0, 3.0 * copies)


# Of each test, so many mebibytes are made where its context is another one than pytest's, or in another thread.
OTHER_CONTEXTS = """
import contextvars, threading, unittest
import pytest
import nthbyte

BEFORE = contextvars.copy_context()
KEPT = [None]

def make(count):
    for _ in range(count):
        KEPT[0] = bytes(1 << 20)

@pytest.fixture(scope="module")
def table():
    make(2)
    yield
    make(1)

def test_context():
    BEFORE.run(make, 3)

def test_thread(table):
    thread = threading.Thread(target=make, args=[4])
    thread.start()
    thread.join()

def test_label():
    with nthbyte.label(endpoint="/"):
        make(5)

class TestAwaited(unittest.IsolatedAsyncioTestCase):
    async def test_awaited(self):
        make(6)

@pytest.mark.limit_memory("1 GB")
def test_alone():
    make(7)

def test_after():
    make(8)
"""


def test_samples_have_the_label_of_their_test(pytester: pytest.Pytester) -> None:
    name = pytester.makepyfile(OTHER_CONTEXTS).name
    run = pytester.runpytest("--nthbyte", "--nthbyte-every", "1", "--nthbyte-output", "p.nthb")
    run.assert_outcomes(passed=6)

    def made(label: str) -> int:
        """The mebibytes that the function has made with a label, in all profiles."""
        profiles = sorted(map(str, pytester.path.glob("*.nthb")))
        words = ["--label", label, "--domain", "python", "--json"]
        done = subprocess.run([COMMAND, "summary", *profiles, *words], capture_output=True, text=True)
        rows = json.loads(done.stdout)["rows"] if done.returncode == 0 else []
        return round(sum(row["self_bytes"]["estimate"] for row in rows if row["name"] == "make") / MIB)

    expected = {"test_context": 3, "test_thread": 4, "test_label": 5, "test_after": 9}
    for test, mebibytes in {**expected, "TestAwaited::test_awaited": 6}.items():
        assert made(f"test={name}::{test}") == mebibytes, test
    assert made(f"test=fixture table of {name} (module)") == 2
    # It is recorded by itself.
    assert made(f"test={name}::test_alone") == 0
    # A label inside of the test's.
    assert made("endpoint=/") == 5


def test_without_the_flag_nothing_is_loaded(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_modules():
            ours = {name for name in sys.modules if name.startswith("nthbyte")}
            assert ours == {"nthbyte", "nthbyte._pytest_plugin"}
            assert "libnthbyte" not in open("/proc/self/maps").read()
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)
    assert not [*pytester.path.glob("*.nthb")]
    switched_off = pytester.runpytest_subprocess("-p", "no:nthbyte", "--nthbyte")
    switched_off.stderr.fnmatch_lines(["*unrecognized arguments: --nthbyte"])


def test_what_cannot_be_is_said_in_one_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(): pass")
    wrong = pytester.runpytest_subprocess("--nthbyte", "--nthbyte-every", "few")
    assert wrong.ret == pytest.ExitCode.USAGE_ERROR
    wrong.stderr.fnmatch_lines(["ERROR: nthbyte: 'few' is not a size*"])
    twice = pytester.run(
        sys.executable, "-m", "nthbyte", "run", "-o", "outer.nthb", "-m", "pytest", "--nthbyte"
    )
    twice.stderr.fnmatch_lines(["ERROR: nthbyte: nthbyte records this process already: leave out --nthbyte*"])
    no_marks = pytester.run(COMMAND, "tests", "outer.nthb")
    assert no_marks.ret == 1
    no_marks.stderr.fnmatch_lines(["nthbyte: what ran when is not known, without outer.tests.json*"])


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_pytest_is_recorded_as_any_program(pytester: pytest.Pytester, workers: int) -> None:
    """It warns of nothing, and what pytest-xdist starts is taken, too."""
    pytester.makepyfile(SUITE)
    pytester.makeini("[pytest]\nfilterwarnings = error\n")
    words = ["run", "-o", "run.nthb", "-m", "pytest", "-n", str(workers)]
    run = pytester.run(sys.executable, "-m", "nthbyte", *words)
    run.assert_outcomes(passed=5, failed=1, skipped=1)
    explained = pytester.run(COMMAND, "explain", "run.nthb").stdout.str()
    assert ("· 3 processes ·" in explained) == (workers == 2)

    def has_test(*options: str) -> bool:
        done = pytester.run(COMMAND, "summary", "--json", "--top", "0", *options, "run.nthb")
        return any(row["name"] == "test_churn" for row in json.loads(done.stdout.str())["rows"])

    # The first process of several runs no test.
    assert has_test()
    assert has_test("--alone") == (workers == 0)


def test_nothing_is_recorded_where_no_test_runs(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(): pass")
    for option in ("--collect-only", "--help"):
        assert pytester.runpytest("--nthbyte", option).ret == 0
    assert not [*pytester.path.glob("*.nthb")]
