"""Every process of a program writes a profile of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness import Interpreter, summary

POOL = """
import multiprocessing, os

def work(n):
    return len([bytes(1000 + n % 8) for n in range(3000)]), os.getpid()

if __name__ == "__main__":
    multiprocessing.set_start_method("{method}")
    with multiprocessing.Pool(2) as pool:
        pids = {{pid for _, pid in pool.map(work, range(8), chunksize=1)}}
        pool.close()
        pool.join()
    process = multiprocessing.Process(target=work, args=(1,))
    process.start()
    process.join()
    print(*pids, process.pid)
"""

FORK = """
import os, sys
keep = [bytes(1000 + n % 8) for n in range(3000)]
pid = os.fork()
if pid == 0:
    more = [bytes(1000 + n % 8) for n in range(6000)]
    {exit}
print(pid, os.waitpid(pid, 0)[1] >> 8)
"""

SUBPROCESS = """
import subprocess, sys
print(subprocess.run([sys.executable, "-c", "print(len([bytes(1000 + n % 8) for n in range(5000)]))"],
                     capture_output=True, text=True).stdout)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method: str, interpreter: Interpreter, tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text(POOL.format(method=method))
    done = interpreter.nthbyte("run", "--every", "4K", "-o", "out.nthb", script, folder=tmp_path).ok()
    pids = set(map(int, done.out.split()))
    children = {path.name for path in tmp_path.glob("out.*.nthb")}
    assert children >= {f"out.{pid}.nthb" for pid in pids}
    parent = summary(tmp_path / "out.nthb")
    assert parent["complete"]
    for pid in pids:
        child = summary(tmp_path / f"out.{pid}.nthb")
        assert child["pid"] == pid
        assert child["complete"]
        assert any(row["name"].startswith("work") for row in child["rows"])
    [line] = done.err.splitlines()
    assert f"{len(children)} child process" in line


@pytest.mark.launcher
@pytest.mark.parametrize("flags", [("-bb",), ("-X", "tracemalloc")], ids=["-bb", "tracemalloc"])
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_options_of_the_interpreter_that_children_have(
    flags: tuple[str, ...], method: str, interpreter: Interpreter, tmp_path: Path
) -> None:
    script = tmp_path / "app.py"
    script.write_text(POOL.format(method=method))
    words = ("run", "--every", "4K", "-o", "out.nthb", script)
    done = interpreter.nthbyte(*words, folder=tmp_path, flags=flags).ok()
    children = {path.name for path in tmp_path.glob("out.*.nthb")}
    assert children >= {f"out.{pid}.nthb" for pid in done.out.split()}
    [line] = done.err.splitlines()
    assert f"{len(children)} child process" in line


# A program frozen by PyInstaller: its executable takes no options of Python, and runs code of its command line only if
# that begins as multiprocessing's own.
FROZEN = """
import os, sys
if sys.argv[1:] and "-c" in sys.argv:
    code = sys.argv[sys.argv.index("-c") + 1]
    code_of_server = "from multiprocessing.forkserver import main;"
    theirs = "from multiprocessing.resource_tracker ", code_of_server, "import sys; " + code_of_server
    assert code.startswith(theirs), code
    exec(code)
    sys.exit()
import app, multiprocessing, multiprocessing.spawn
if "--multiprocessing-fork" in sys.argv:
    words = (word.split("=") for word in sys.argv[2:])
    multiprocessing.spawn.spawn_main(**{name: int(value) for name, value in words})
with open("frozen", "w") as script:
    script.write(f'#!/bin/sh\\nexec {sys.executable} {os.path.abspath("frozen.py")} "$@"\\n')
os.chmod("frozen", 0o755)
sys.frozen, sys.executable = True, os.path.abspath("frozen")
if __name__ == "__main__":
    import nthbyte
    multiprocessing.process.ORIGINAL_DIR = None
    del sys.modules["__main__"].__file__
    multiprocessing.set_start_method(sys.argv[1])
    multiprocessing.set_executable(sys.executable)
    with nthbyte.Profiler("out.nthb", every="4K"), multiprocessing.Pool(2) as pool:
        pids = {pid for _, pid in pool.map(app.work, range(8), chunksize=1)}
        pool.close()
        pool.join()
    print(*pids)
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_children_of_a_frozen_program(method: str, interpreter: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(POOL.format(method="forkserver"))
    (tmp_path / "frozen.py").write_text(FROZEN)
    done = interpreter.python("frozen.py", method, folder=tmp_path).ok()
    if method == "spawn":
        assert done.err.count("nthbyte: what a frozen program starts by spawn is not profiled") == 1
        return
    for pid in done.out.split():
        assert any(row["name"].startswith("work") for row in summary(tmp_path / f"out.{pid}.nthb")["rows"])


# A library whose initialisation needs the GIL. Meanwhile its thread holds the dynamic linker's lock.
SLOW_LIBRARY = """
#include <unistd.h>
int PyGILState_Ensure(void);
void PyGILState_Release(int);
__attribute__((constructor)) static void initialise(void) {
    write(1, "begins\\n", 7);
    char end;
    read(0, &end, 1);
    PyGILState_Release(PyGILState_Ensure());
}
"""

FORK_MEANWHILE = """
import ctypes, os, threading, nthbyte
nthbyte.start("out.nthb", native=False)
kept = [bytes(1000) for _ in range(5000)]
ready, done = os.pipe()
go, stdin = os.pipe()
os.dup2(go, 0)
stdout = os.dup(1)
os.dup2(done, 1)
load = ctypes.CDLL(None).dlopen
load.argtypes, load.restype = [ctypes.c_char_p, ctypes.c_int], ctypes.c_void_p
thread = threading.Thread(target=load, args=(b"./slow.so", os.RTLD_NOW))
thread.start()
assert os.read(ready, 7) == b"begins\\n"
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), 9)
    assert os.waitpid(pid, 0)[1] == 9
os.write(stdin, b"x")
thread.join()
nthbyte.stop()
os.write(stdout, b"well\\n")
"""


def test_a_fork_while_another_thread_loads_a_library(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "slow.c").write_text(SLOW_LIBRARY)
    words = ["cc", "-shared", "-fPIC", "-w", "-o", "slow.so", "slow.c"]
    subprocess.run(words, cwd=tmp_path, check=True)
    assert cpython.python("-c", FORK_MEANWHILE, folder=tmp_path, idle=10).ok().out == "well\n"


@pytest.mark.parametrize("end", ["os._exit(3)", "sys.exit(3)"])
def test_fork(end: str, interpreter: Interpreter, tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text(FORK.format(exit=end))
    done = interpreter.nthbyte("run", "--every", "1", "-o", "out.nthb", script, folder=tmp_path).ok()
    pid, status = map(int, done.out.split())
    assert status == 3
    one, other = summary(tmp_path / "out.nthb"), summary(tmp_path / f"out.{pid}.nthb")
    assert one["complete"]
    assert other["complete"]
    # Allocations before the fork are in the parent's profile only.
    if not interpreter.is_pypy:
        assert 3_000_000 < one["all"]["bytes"]["estimate"] < 5_000_000
        assert 6_000_000 < other["all"]["bytes"]["estimate"] < 8_000_000
    [line] = done.err.splitlines()
    assert "1 child process;" in line


# A thread starts the first session, and another one forks meanwhile. A program may also start one when it has forked.
FORK_IN_START = """
import os, threading, time, nthbyte
os.register_at_fork(after_in_child=lambda: nthbyte.start("second.nthb") if again else None)
from nthbyte import _operations, _session
_session._LONGEST_WAIT = 600
again, begun, operations = False, threading.Event(), _operations.operations

def slow_operations():
    begun.set()
    time.sleep(0.2)
    return operations()

_operations.operations = slow_operations
thread = threading.Thread(target=nthbyte.start, args=("out.nthb",), kwargs={"every": "4KiB"})
thread.start()
begun.wait()
pid = os.fork()
if pid == 0:
    more = [bytes(1000 + n % 8) for n in range(6000)]
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
thread.join()
nthbyte.stop()
again = True
child = os.fork()
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(pid)
"""


def test_a_fork_waits_for_the_start_of_a_session(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(FORK_IN_START)
    pid = cpython.python("app.py", folder=tmp_path).ok().out.strip()
    child = summary(tmp_path / f"out.{pid}.nthb")
    assert child["complete"]
    assert child["samples"] > 500
    assert summary(tmp_path / "second.nthb")["complete"]


# After these, CPython 3.12 and later count the process's threads. The writer thread comes back only then.
BUSY_FORK = """
import os, warnings
os.register_at_fork(after_in_parent=lambda: [object() for _ in range(2_000)])
for _ in range(10):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        pid = os.fork()
        if pid == 0:
            os._exit(0)
    assert not warned, warned
    os.waitpid(pid, 0)
"""


def test_the_writer_thread_is_stopped_during_a_fork(cpython: Interpreter, tmp_path: Path) -> None:
    done = cpython.nthbyte(
        "run", "-q", "--every", "1", "-o", "out.nthb", "-c", BUSY_FORK, folder=tmp_path
    ).ok()
    assert done.err == ""
    found = summary(tmp_path / "out.nthb")
    assert found["complete"]
    assert found["lost"] == 0
    assert found["all"]["allocations"]["estimate"] > 20_000


def test_fork_counts_from_zero(cpython: Interpreter, tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text(FORK.format(exit="os._exit(0)"))
    done = cpython.nthbyte("run", "--every", "1", "-o", "out.nthb", script, folder=tmp_path).ok()
    child = summary(tmp_path / f"out.{done.out.split()[0]}.nthb")
    assert child["bytes_allocated"] < 8_000_000


def test_child_programs_without_nthbyte_are_unchanged(interpreter: Interpreter, tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text(SUBPROCESS)
    done = interpreter.nthbyte("run", "-q", "-o", "out.nthb", script, folder=tmp_path).ok()
    assert done.out.strip() == "5000"
    assert [path.name for path in tmp_path.glob("*.nthb")] == ["out.nthb"]
