"""Events in no profile are counted: by the line at the end, and by the reports of the first process's profile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import Interpreter, report, summary

# Forks two children for which no file can be created, of which one has a child itself; and two for which it can.
CHILDREN = """
import os
def fork(then=lambda: None):
    pid = os.fork()
    if not pid:
        kept = [[n] for n in range(20_000)]
        then()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
fork()
os.rename("profiles", "elsewhere")
fork()
fork(fork)
os.rename("elsewhere", "profiles")
fork()
"""


def said_by_reports(profile: Path, clause: str) -> None:
    folder = profile.parent
    assert clause in "\n".join(summary(profile)["notes"])
    words = " ".join(report("explain", profile, folder=folder).ok().out.split())
    assert f"Not in these answers: {clause}" in words
    notes = json.loads(report("memory", "--json", profile, folder=folder).ok().out)["notes"]
    assert clause in "\n".join(notes)


def test_children_without_a_file_are_said(interpreter: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    profile = tmp_path / "profiles" / "out.nthb"
    words = ("run", "--every", "1K", "-o", str(profile), "-c", CHILDREN)
    done = interpreter.nthbyte(*words, folder=tmp_path).ok()
    assert ", 2 child processes, 3 child processes have no profile (" in done.err
    said_by_reports(profile, "3 child processes have no profile (")
    # Those that came later do not say it again.
    children = list(profile.parent.glob("out.*.nthb"))
    assert len(children) == 2
    for child in children:
        assert "have no profile" not in "\n".join(summary(child)["notes"])
    # A merged profile keeps it.
    merged = tmp_path / "merged.nthb"
    report("merge", *profile.parent.glob("*.nthb"), "-o", merged, folder=tmp_path).ok()
    assert "3 child processes have no profile (" in "\n".join(summary(merged)["notes"])


# Two sessions of a process; a child of the first one has no file.
SESSIONS = """
import os, nthbyte
def fork():
    pid = os.fork()
    if not pid:
        kept = [[n] for n in range(20_000)]
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
for number in range(2):
    os.mkdir("profiles")
    with nthbyte.Profiler(f"profiles/{number}.nthb", every="1K"):
        kept = [[n] for n in range(20_000)]
        os.rename("profiles", str(number))
        if number == 0:
            fork()
"""


def test_each_session_has_its_own(interpreter: Interpreter, tmp_path: Path) -> None:
    interpreter.python("-c", SESSIONS, folder=tmp_path).ok()
    first, second = ("\n".join(summary(tmp_path / f"{n}/{n}.nthb")["notes"]) for n in range(2))
    assert "1 child process has no profile (" in first
    assert "no profile" not in second


OTHERS = """
import sys
try:
    import _interpreters
    make = lambda own: _interpreters.create("isolated" if own else "legacy")
    execute = _interpreters.exec
except ImportError:
    import _xxsubinterpreters as _interpreters
    make = lambda own: _interpreters.create(isolated=own)
    execute = _interpreters.run_string
other = make(sys.argv[1] == "own")
execute(other, "kept = [[n] for n in range(20_000)]")
_interpreters.destroy(other)
"""


@pytest.mark.parametrize("gil", ["own", "main"])
def test_interpreters_with_their_own_gil_are_said(gil: str, cpython: Interpreter, tmp_path: Path) -> None:
    if cpython.python_version < (3, 12):
        pytest.skip("has one GIL")
    profile = tmp_path / "out.nthb"
    done = cpython.nthbyte("run", "-o", "out.nthb", "-c", OTHERS, gil, folder=tmp_path).ok()
    clause = "interpreters with their own GIL ran, and what they allocate is not sampled"
    assert (clause in done.err) == (gil == "own")
    if gil == "own":
        said_by_reports(profile, clause)
    else:
        assert clause not in "\n".join(summary(profile)["notes"])
