"""``nthbyte attach``: PyPy from 7.3.18 on is entered by its own protocol."""

from __future__ import annotations

from pathlib import Path

import harness
from cpython.attaching import running

CODE = """
kept = []

def work():
    for number in range(20000):
        kept.append(str(number) * 50)

input()
work()
print("worked", flush=True)
input()
print(sorted(name for name in globals() if not name.startswith("__")))
"""


def test_a_process_that_waits_is_recorded_and_says_so(pypy: harness.Interpreter, tmp_path: Path) -> None:
    with running(pypy, CODE, tmp_path) as one:
        done = one.nthbyte("attach", "-o", "a.nthb", "--for", "0")
        if pypy.about[1] < [7, 3, 18]:
            assert done.status == 1
            assert "start the program with NTHBYTE=ready" in done.err
            return
        assert "see it with: nthbyte explain a.nthb" in done.ok().err
        one.say()
        # PyPy's own line, on the program's standard output, which is written at its next flush: to begin and to end.
        lines = [one.line() for _ in range(3)]
        assert ["remote debugger script" in line for line in lines] == [True, True, False]
        assert lines[2] == "worked"
        ended = one.end("\n").ok()
    assert (ended.out, ended.err) == ("['kept', 'work']\n", "")
    assert not list(Path("/tmp").glob(f".nthbyte-{one.process.pid}-*"))
