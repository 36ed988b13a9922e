"""``nthbyte attach``: PyPy from 7.3.18 on is entered by its own protocol."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import harness
from cpython.attaching import in_container, running

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


# PyPy closes the files of scripts at its next collection only.
IN_CONTAINER = f"""
import os

def opened():
    links = [f"/proc/self/fd/{{number}}" for number in os.listdir("/proc/self/fd")]
    names = [os.readlink(link) for link in links if os.path.lexists(link)]
    return len([name for name in names if "script" not in name and "memfd" not in name])

print("here", flush=True)
before = opened()
{CODE}
print(os.listdir("/tmp"), opened() - before)
"""


@pytest.mark.parametrize("mode", ["rw", "ro"])
def test_a_container_needs_nothing_of_nthbyte_in_it(
    pypy: harness.Interpreter, tmp_path: Path, mode: str
) -> None:
    """Also where no file can be written: neither the script, nor the package, nor the profile."""
    if pypy.about[1] < [7, 3, 18]:
        pytest.skip("this version has no way in")
    one = in_container(pypy, IN_CONTAINER, tmp_path, [harness.SITE, tmp_path], mode)
    attached = one.attach("-o", "a.nthb", "--every", "4KiB")
    assert attached.stderr is not None
    assert f"recording process {one.number} until Ctrl-C, into a.nthb; " in attached.stderr.readline()
    one.say()
    while "remote debugger script" in (line := one.line()):
        pass
    assert line == "worked"
    attached.send_signal(signal.SIGINT)
    assert "samples; see it with: nthbyte explain a.nthb\n" in attached.stderr.read()
    assert attached.wait() == 0
    said = one.end("\n").ok().out.splitlines()
    # The package stays open, because nthbyte may import more of itself.
    assert said[-1] == f"[] {0 if mode == 'rw' else 1}"
    assert [path.name for path in tmp_path.iterdir()] == ["a.nthb"]
    assert harness.summary(tmp_path / "a.nthb", "--by", "function")["rows"][0]["name"] == "work"


RECORDED = """
import json, sys
from nthbyte._ready import ready
ready()
from nthbyte._remote import answer
before = set(sys.modules)
said = [answer(f"do={what}\\0folder=/\\0output=a.nthb")[0] for what in ("begin", "end")]
new = [name for name in set(sys.modules) - before if hasattr(sys.modules[name], "__file__")]
print(said, [name for name in new if not name.startswith("nthbyte.")])
"""


def test_nothing_of_the_standard_library_stays_after_a_recording(
    pypy: harness.Interpreter, tmp_path: Path
) -> None:
    """Each full collection of the program would look at its objects."""
    done = pypy.python("-c", RECORDED, folder=tmp_path, environment={"PYTHONPATH": str(harness.SITE)})
    assert done.ok().out == "['+', '+'] []\n"
