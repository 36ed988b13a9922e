"""The runner of all suites: a failure does not stop the others, and the table has each result."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import suites
from suites import Suite

MAKEFILE = """
good:
	@echo "===== 3 passed, 1 skipped in 0.10s ====="
bad:
	@echo "test result: FAILED. 2 passed; 1 failed; 0 ignored; finished in 0.00s"; exit 3
killed:
	@kill -9 $$$$
left-out:
	@echo "nthbyte: the page was not tested; missing: chromium" >&2
last:
	@touch last; printf '\\303\\050 no text\\n'
"""


def _run(folder: Path, *names: Suite) -> list[suites.Result]:
    (folder / "Makefile").write_text(MAKEFILE)
    return suites.run_all(names, ["make", "--no-print-directory", "-C", str(folder)])


def test_other_suites_run_after_a_failure(tmp_path: Path) -> None:
    targets = ["bad", "killed", "missing", "good", "left-out", "last"]
    results = _run(tmp_path, *(Suite(target, target) for target in targets))
    outcomes = {result.suite.name: result.outcome for result in results}
    assert outcomes == {
        "bad": "FAILED",
        "killed": "FAILED",
        "missing": "FAILED",
        "good": "passed",
        "left-out": "skipped",
        "last": "passed",
    }
    assert (tmp_path / "last").exists()


def test_a_suite_without_the_suite_that_it_needs_fails(tmp_path: Path) -> None:
    *_, result = _run(tmp_path, Suite("build", "bad"), Suite("last", "last", needs="build"))
    assert (result.outcome, result.counts) == ("NOT RUN", "it needs: build")
    assert not result.is_good
    assert not (tmp_path / "last").exists()
    *_, result = _run(tmp_path, Suite("build", "good"), Suite("last", "last", needs="build"))
    assert result.outcome == "passed"


def test_suites_that_need_one_core_run_in_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "Makefile").write_text(
        """
        first second: ; @echo $@ begins; touch $@; while ! [ -e first -a -e second ]; do sleep 0.01; done; echo $@ ends
        alone: ; @[ -e second ] && echo alone
        """.replace("        ", "")
    )
    names = [Suite("first", "first", cores=1), Suite("alone", "alone"), Suite("second", "second", cores=1)]
    results = suites.run_all(names, ["make", "--no-print-directory", "-C", str(tmp_path)])
    assert [(result.suite.name, result.outcome) for result in results] == [
        ("first", "passed"),
        ("alone", "passed"),
        ("second", "passed"),
    ]
    shown = "\n== {0}\n{0} begins\n{0} ends\n"
    assert capsys.readouterr().out == f"{shown.format('first')}{shown.format('second')}\n== alone\nalone\n"


def test_a_suite_runs_alone_without_the_suite_that_it_needs(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(
        """
        first: ; @sleep 0.3; touch ended
        second: ; @[ -e ended ]
        """.replace("        ", "")
    )
    names = [Suite("first", "first", cores=1), Suite("second", "second", needs="build", cores=1)]
    results = suites.run_all(names, ["make", "--no-print-directory", "-C", str(tmp_path)])
    assert [result.outcome for result in results] == ["passed", "passed"]


def test_the_table_has_a_line_for_each_suite(tmp_path: Path) -> None:
    results = _run(tmp_path, Suite("one", "good"), Suite("the other", "bad"))
    first, second = suites.table([replace(result, seconds=0.0) for result in results]).splitlines()
    assert first.split() == ["one", "passed", "0", "s", "3", "passed,", "1", "skipped"]
    assert second.split() == ["the", "other", "FAILED", "0", "s", "2", "passed,", "1", "failed"]


def test_counts_of_each_runner() -> None:
    cargo = [
        "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n"
    ] * 2
    assert suites.counts(cargo) == "10 passed, 2 ignored"
    pytest = ["==== 1 failed, 40 passed, 3 skipped, 2 errors in 12.50s (0:00:12) ====\n"]
    assert suites.counts(pytest) == "1 failed, 40 passed, 3 skipped, 2 errors"
    assert suites.counts(["no tests ran in 0.01s\n", "3 passed in 0.1s\n"]) == "3 passed"
    node = ["ℹ tests 7\n", "ℹ pass 6\n", "ℹ fail 1\n", "# pass 2\n"]
    assert suites.counts(node) == "8 passed, 1 failed"
    assert suites.counts(["warning: 2 passed by\n"]) == ""


def test_what_failed_is_shown_again(tmp_path: Path) -> None:
    output = """test one::fails ... FAILED
        thread 'one::fails' (12) panicked at src/one.rs:3:5:
        assertion `left == right` failed
          left: 1
        E       assert 3 == 4
        FAILED tests/test_one.py::test_one - assert 3 == 4
        1 passed
        """.replace("        ", "")
    make = tmp_path / "make"
    make.write_text(f"#!/bin/sh\ncat <<'EOF'\n{output}EOF\nexit 1\n")
    make.chmod(0o755)
    env = {**os.environ, "MAKE": str(make)}
    words = [sys.executable, suites.__file__, "test-page"]
    shown = subprocess.run(words, env=env, capture_output=True, text=True, check=False).stdout
    again = output.replace("assertion `left == right` failed\n", "").replace("1 passed\n", "")
    assert shown.partition("\n== All suites")[0] == f"\n== page\n{output}\n== page failed\n{again}"
    # Whatever else a program printed last.
    assert suites.failure_lines(["one\n", "\n", "two\n"]) == ["one", "two"]


def test_the_exit_status_shows_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make = tmp_path / "make"
    short = [suite for suite in suites.SUITES if not suite.only_in_all]
    fails = 'case "$*" in *test-page) exit 1; esac'
    for body, status, words, those in (
        ("exit 0", 0, [], short),
        ("exit 0", 0, ["--all"], suites.SUITES),
        (fails, 1, [], short),
    ):
        make.write_text(f"#!/bin/sh\n{body}\n")
        make.chmod(0o755)
        done = subprocess.run(
            [sys.executable, suites.__file__, *words],
            env={**os.environ, "MAKE": str(make)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == status
        assert len(done.stdout.split("== All suites\n")[1].splitlines()) == len(those)
    assert [suites.main(["check-nothing"]), capsys.readouterr().err] == [
        2,
        "nthbyte: no such suite: check-nothing\n",
    ]


def test_every_suite_is_a_target_of_the_makefile() -> None:
    makefile = (Path(__file__).resolve().parents[2] / "Makefile").read_text()
    targets = set(re.findall(r"^([\w-]+):", makefile, re.M))
    assert {suite.target for suite in suites.SUITES} <= targets
