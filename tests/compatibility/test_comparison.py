"""What `make compatibility` compares with, and what it writes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from compatibility import comparison, document, outcomes, reasons, results
from compatibility.comparison import Suite
from compatibility.execution import TIMED_OUT, Command, Ended, execute
from compatibility.outcomes import Outcome
from compatibility.packages import Package, Table, table
from compatibility.results import Record

PASSED, FAILED = Outcome("passed"), Outcome("failed", "AssertionError: 1 != 2")
RECORD = Path(__file__).parent / "inside" / "record.py"

TESTS = """
import os, unittest
class Tests(unittest.TestCase):
    def test_same(self):
        with unittest.TestCase().subTest(part=1): pass
    def test_skipped(self): self.skipTest("port 5000")
    @unittest.expectedFailure
    def test_expected(self): self.fail()
    def test_parts(self):
        with self.subTest(part=object()): self.fail("only this part")
    def test_nested(self):
        result = unittest.TestResult()
        Inner("test_inner")(result)
        assert result.failures
    def test_forks(self):
        child = os.fork()
        if child == 0:
            unittest.TestResult().addSuccess(self)
            os._exit(0)
        os.waitpid(child, 0)
        assert {condition}
class Inner(unittest.TestCase):
    def test_inner(self): self.fail()
del Inner
if __name__ == "__main__":
    unittest.main()
""".replace("del Inner\n", "Inner.__test__ = False\n")


def suite(folder: Path, program: str, profiled: str, limit: float = 60) -> Suite:
    """Two programs: the one that runs plainly, and the one that is "profiled"."""

    def command(inside: Path, recorded: Path, options: Sequence[str] | None, tests: Sequence[str]) -> Command:
        script = inside / "tests.py"
        script.write_text(program if options is None else profiled)
        return Command([sys.executable, str(RECORD), str(recorded), str(script), "Tests"], inside, {})

    return Suite("here", "tests", command, limit)


def test_outcomes_are_recorded_and_compared(tmp_path: Path) -> None:
    good, bad = TESTS.replace("{condition}", "True"), TESTS.replace("{condition}", "False")
    same = comparison.compare(suite(tmp_path, good, good), ())
    assert same.state == comparison.COMPARED and not same.differences and not same.unstable
    # The part that failed has its own name, as its test is reported as neither passed nor failed.
    assert same.counts == {"passed": 3, "skipped": 1, "failed as expected": 1, "failed": 1}
    other = comparison.compare(suite(tmp_path, good, bad), ())
    assert [(one.test, one.plain, one.profiled) for one in other.differences] == [
        ("__main__.Tests.test_forks", "passed", "failed")
    ]
    assert other.statuses == [[1] * comparison.RUNS] * 2 and "assert False" in other.output


def test_a_crash_is_a_difference(tmp_path: Path) -> None:
    good = TESTS.replace("{condition}", "True")
    crash = TESTS.replace("{condition}", "os.kill(os.getpid(), 11)")
    result = comparison.compare(suite(tmp_path, good, crash), ())
    assert comparison.EXIT in [one.test for one in result.differences]
    assert next(one for one in result.differences if one.test == comparison.EXIT).profiled == "status -11"


def test_a_suite_that_does_not_end_is_too_slow(tmp_path: Path) -> None:
    hangs = TESTS.replace("{condition}", "not os.system('sleep 1000 & sleep 1000')")
    assert comparison.compare(suite(tmp_path, hangs, hangs, 1), ()).state == comparison.TOO_SLOW


@pytest.mark.parametrize(("seconds", "state"), [(1.0, comparison.COMPARED), (20.0, comparison.TOO_SLOW)])
def test_a_suite_that_does_not_end_with_nthbyte_only_is_a_difference(
    seconds: float, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = []

    def end(command: Command, output: Path, limit: float) -> Ended:
        output.touch()
        limits.append(limit)
        plain = (command.folder / "tests.py").read_text() == "plain"
        return Ended(0, seconds) if plain else Ended(TIMED_OUT, limit)

    monkeypatch.setattr(comparison, "execute", end)
    result = comparison.compare(suite(tmp_path, "plain", "profiled", limit=10), ())
    assert result.state == state
    assert [one.profiled for one in result.differences] == (
        ["no end"] if state == comparison.COMPARED else []
    )
    assert limits[:2] == [10, 10] and set(limits[2:]) == {10 * comparison.MORE_TIME}


def test_a_process_that_is_left_behind_is_ended(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "import os, time; os.fork() or os.setsid(); time.sleep(1000)"]
    ended = execute(Command(words, tmp_path, {"WITNESS": str(tmp_path)}), tmp_path / "output", 1)
    assert ended.timed_out
    end = time.monotonic() + 60
    while _witnesses(tmp_path) and time.monotonic() < end:
        # SIGKILL takes effect in the background.
        time.sleep(0.05)
    assert not _witnesses(tmp_path)


def _witnesses(folder: Path) -> list[Path]:
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"WITNESS={folder}".encode() in environment.read_bytes().split(b"\0"):
                found.append(environment)
        except OSError:
            # It has ended meanwhile.
            continue
    return found


@pytest.mark.parametrize(
    ("plain", "profiled", "differs", "unstable"),
    [
        ([PASSED], [PASSED], False, False),
        ([PASSED], [FAILED], True, False),
        ([PASSED, PASSED], [FAILED, PASSED], False, True),
        ([PASSED, FAILED], [Outcome("error"), Outcome("error")], True, False),
        ([Outcome("skipped", "port 12")], [Outcome("skipped", "port 345")], False, False),
        ([Outcome("skipped", "no network")], [Outcome("skipped", "is traced")], True, False),
        ([PASSED], [None], True, False),
    ],
)
def test_a_difference_is_one_in_all_runs(
    plain: list[Outcome | None], profiled: list[Outcome | None], differs: bool, unstable: bool
) -> None:
    runs = [[{"test": one} if one else {} for one in side] for side in (plain, profiled)]
    assert bool(outcomes.differences(*runs)) == differs
    assert bool(outcomes.unstable(*runs)) == unstable


def test_names_are_compared_without_what_is_random(tmp_path: Path) -> None:
    recorded = tmp_path / "outcomes"
    for folder, uuid in (("abc_1", "0123456789ab"), ("x9", "ba9876543210")):
        name = f"test[nthbyte-compatibility-{folder}/tests.py-2add3a0a-1ab4-4269-a592-{uuid}]"
        line = json.dumps({"id": name, "outcome": "passed", "reason": name})
        recorded.write_text(f'{line}\n{{"id"')
        known = "test[nthbyte-compatibility-/tests.py-]"
        assert outcomes.read(recorded) == {known: Outcome("passed", known)}


def test_the_document_tells_what_was_run_and_what_was_not(tmp_path: Path) -> None:
    result = comparison.Result(
        comparison.COMPARED, 3, {"passed": 3}, [outcomes.Difference("a.b[1]", "passed", "failed")], ["a.c"]
    ).as_json()
    records = [
        Record("cpython-3.14", ["test_a", "test_b"], [], "2026-01-02", "abc", result),
        Record("packages-cpython-3.14", ["six"], ["--native"], "2026-01-03", "abc", result),
        Record(
            "cpython-3.14",
            ["test_c"],
            [],
            "2026-01-03",
            "abc",
            comparison.Result(comparison.TOO_SLOW).as_json(),
        ),
    ]
    entries = Table(
        [Package("six", ["six==1.17.0"], []), Package("seven", ["seven==1"], [])], {"eight": "it is gone"}
    )
    known = [reasons.Reason("packages-*", "six", "a.b[?]", "it counts frames")]
    text = document.text(records, {"cpython-3.14": ["test_a", "test_b", "test_c", "test_d"]}, entries, known)
    assert "| cpython-3.14 | 3 of 4 | 1 | 3 | 3 passed | 1 | 1 | 0 |" in text
    assert "## The suites of packages, with `--native`" in text
    assert "| six 1.17.0 | pure Python | all | 3 | 3 passed | 1 | 1 | 1 |" in text
    assert "| cpython-3.14 test_a | `a.b[1]` | passed | failed | **not explained yet** |" in text
    assert "| packages-cpython-3.14 six --native | `a.b[1]` | passed | failed | it counts frames |" in text
    assert (
        "not run yet (1 modules): d." in text
        and "eight: it is gone." in text
        and "run yet: six, seven." in text
    )


def test_the_document_says_what_is_known_of_processors() -> None:
    assert document.PROCESSORS in document.DOCUMENT.read_text()
    assert document.PROCESSORS in document.text([], {}, Table([], {}), [])


def test_a_suite_has_one_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "STORE", tmp_path)
    result = comparison.Result(comparison.COMPARED, 3).as_json()
    for suites, options in ((["a", "b"], []), (["a", "b"], ["--native"]), (["c"], []), (["b"], [])):
        results.save(Record("here", suites, options, "2026-01-02", "abc", result))
    assert results.covered([]) == {("here", "b"), ("here", "c")}
    assert results.covered(["--native"]) == {("here", "a"), ("here", "b")}


def test_every_package_is_pinned() -> None:
    for package in table().packages:
        for requirement in package.requires:
            assert "==" in requirement, f"{package.name}: {requirement}"
