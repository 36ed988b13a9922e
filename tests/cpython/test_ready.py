"""Processes that were prepared for ``nthbyte attach``: with ``NTHBYTE=ready``, ``nthbyte.ready`` or ``run --ready``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import harness
from cpython.attaching import in_container, running

# Waits, allocates when it has read a line, and prints what could differ.
WORK = """
import os, signal, threading

def work():
    return [str(number) * 50 for number in range(20000)]

def children():
    pid = os.fork()
    if pid == 0:
        # It listens by now.
        print(os.getpid(), flush=True)
        kept = work()
        os._exit(input() != "end")
    return os.waitpid(pid, 0)[1]

print(len(os.listdir("/proc/self/task")), threading.active_count(), flush=True)
input()
kept = work()
print("worked", flush=True)
input()
print(children())
"""

READY = f"import sys; sys.path.append({str(harness.SITE)!r}); import nthbyte; nthbyte.ready(); sys.path.pop()\n{WORK}"


def test_a_ready_process_is_recorded_without_ptrace(interpreter: harness.Interpreter, tmp_path: Path) -> None:
    with running(interpreter, READY, tmp_path) as one:
        assert one.line() == "1 1"
        assert "listens" in one.nthbyte("attach", "--look").ok().out
        attached = one.attach("--method", "ready", "-o", "a.nthb")
        assert attached.stderr is not None
        assert "recording" in attached.stderr.readline()
        one.say()
        assert one.line() == "worked"
        ended = one.nthbyte("detach", "--method", "ready").ok()
        assert "samples; see it with: nthbyte explain a.nthb" in ended.err
        attached.communicate()
        assert attached.returncode == 0
        one.say()
        # The child listens for itself.
        child = int(one.line())
        recorded = harness.run(
            [str(harness.COMMAND), "attach", str(child), "--method", "ready", "-o", "c.nthb", "--for", "0"],
            tmp_path,
        )
        assert "see it with: nthbyte explain c.nthb" in recorded.ok().err
        done = one.end("end\n").ok()
    assert (done.out, done.err) == ("0\n", "")
    found = harness.summary(tmp_path / "a.nthb", "--by", "function")
    assert "program.py" in str(found["rows"][0])


def test_a_ready_pypy_loads_the_agent_with_the_first_request(
    pypy: harness.Interpreter, tmp_path: Path
) -> None:
    """Each of its major collections visits every module."""
    code = "nthbyte.ready(); print([name for name in sys.modules if 'nthbyte' in name or 'cffi' in name])"
    prepared = f"import sys; sys.path.append({str(harness.SITE)!r}); import nthbyte; {code}\n"
    with running(pypy, f"{prepared}sys.path.pop(); print(input())", tmp_path) as one:
        assert one.line() == "['nthbyte', 'nthbyte._agent', 'nthbyte._ready']"
        # Where this package was found is no longer in the path.
        recorded = one.nthbyte("attach", "--method", "ready", "-o", "a.nthb", "--for", "0")
        assert "see it with: nthbyte explain a.nthb" in recorded.ok().err
        one.end("end\n").ok()


# Waits when the interpreter has taken its handlers of signals away.
ENDS = f"""
import sys; sys.path.append({str(harness.SITE)!r}); import nthbyte; nthbyte.ready(); sys.path.pop()
import os

class Last:
    def __del__(self, read=os.read, write=os.write):
        write(1, b"ending\\n")
        read(0, 100)

last = Last()
"""


def test_a_process_at_its_end_is_left_alone(cpython: harness.Interpreter, tmp_path: Path) -> None:
    with running(cpython, ENDS, tmp_path) as one:
        assert one.line() == "ending"
        assert "is not ready" in one.nthbyte("attach", "--method", "ready").err
        assert one.end("line\n").ok().err == ""


@pytest.mark.launcher
def test_the_variable_makes_every_python_of_an_environment_ready(
    cpython: harness.Interpreter, tmp_path: Path
) -> None:
    # A .pth file is read in a site folder only.
    (tmp_path / "sitecustomize.py").write_text(f"import site; site.addsitedir({str(harness.SITE)!r})")
    variables = {"NTHBYTE": "ready", "PYTHONPATH": str(tmp_path)}
    with running(cpython, "print(input())", tmp_path, **variables) as one:
        assert "listens" in one.nthbyte("attach", "--look").ok().out
        one.nthbyte("attach", "--method", "ready", "--for", "0").ok()
        done = one.end("line\n").ok()
    assert (done.out, done.err) == ("line\n", "")


@pytest.mark.launcher
def test_run_ready_records_nothing_until_it_is_asked(cpython: harness.Interpreter, tmp_path: Path) -> None:
    code = (
        "import subprocess, sys; print(subprocess.run(sys.argv[1:], capture_output=True, text=True).stderr)"
    )
    words = ["sh", "-c", f"'{harness.COMMAND}' attach $PPID --method ready --for 0 -o a.nthb"]
    done = cpython.nthbyte("run", "--ready", "-c", code, *words, folder=tmp_path).ok()
    assert "see it with: nthbyte explain a.nthb" in done.out
    assert done.err == ""
    assert [path.name for path in tmp_path.glob("*.nthb")] == ["a.nthb"]
    refused = cpython.nthbyte("run", "--ready", "--every", "1MiB", "-c", "", folder=tmp_path)
    assert refused.status == 2
    assert "give --every to nthbyte attach" in refused.err


@pytest.mark.launcher
def test_a_container_is_asked_from_outside(cpython: harness.Interpreter, tmp_path: Path) -> None:
    if cpython.tree is not None:
        pytest.skip("nthbyte is not in there")
    if harness.REPOSITORY.is_relative_to("/tmp"):
        pytest.skip("the container has a /tmp of its own, without nthbyte")
    code = f"print('here', flush=True)\n{READY}\nprint(os.listdir('/tmp'))"
    one = in_container(cpython, code, tmp_path, [tmp_path], "noexec")
    assert one.line() == "1 1"
    attached = one.attach("--method", "ready", "-o", "a.nthb")
    assert attached.stderr is not None
    assert "into a.nthb; " in attached.stderr.readline()
    one.say()
    assert one.line() == "worked"
    one.nthbyte("detach", "--method", "ready").ok()
    assert "see it with: nthbyte explain a.nthb" in attached.stderr.read()
    assert attached.wait() == 0
    one.say()
    one.line()
    assert one.end("end\n").ok().out == "0\n[]\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.nthb"]


# Asks a process by its socket, and prints the answer, if there is one.
ASK = """
import os, socket, sys, time
own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
if sys.argv[2] != "0":
    os.setuid(int(sys.argv[2]))
own.bind("")
own.settimeout(float(sys.argv[3]))
own.sendto(f"{time.monotonic_ns() + 10**12}\\0do=where\\0folder=/".encode(), "\\0" + sys.argv[1])
try:
    print(own.recv(1000), own.recv(1000))
except TimeoutError:
    print("silence")
"""


@pytest.mark.launcher
def test_another_user_is_not_answered(cpython: harness.Interpreter, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    with running(cpython, READY, tmp_path) as one:
        assert one.line() == "1 1"
        namespace = os.readlink(f"/proc/{one.process.pid}/ns/pid").strip("pid:[]")
        name = f"nthbyte-{namespace}-{one.process.pid}"
        # Who is not answered waits in vain; the other one as long as it takes.
        for user, longest, answer in (("65534", "1", "silence"), ("0", "600", "b'~' b'+'")):
            words = ["-I", "-c", ASK, name, user, longest]
            done = cpython.python(*words, folder=tmp_path).ok()
            assert done.out == f"{answer}\n", user
