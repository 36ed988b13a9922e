"""Each system call that nthbyte makes, but plain Python does not need, fails in turn.

Containers refuse some, and old kernels and sandboxes lack others. Then the program runs as without nthbyte; or nthbyte
does not start it, and says why in one line.
"""

from __future__ import annotations

import errno
import platform
from pathlib import Path

import pytest

from harness import Interpreter, summary
from seccomp import refusing

# Threads, a child, large and small objects: more than 12 MB, so that a period of 16 KiB gives several hundred samples.
PROGRAM = """
import os, threading
def work(turns):
    kept = []
    for _ in range(turns):
        kept.append([object() for _ in range(50)])
        if len(kept) > 200:
            kept.clear()
child = os.fork()
if child == 0:
    work(500)
    os._exit(0)
thread = threading.Thread(target=work, args=(1000,))
thread.start()
work(1000)
thread.join()
print(os.waitpid(child, 0)[1], sum(len(bytearray(200_000)) for _ in range(50)))
"""
OUTPUT = "0 10000000\n"

# Numbers of calls on x86-64 (arch/x86/entry/syscalls/syscall_64.tbl of Linux).
CALLS = {
    "lseek": 8,
    "ioctl": 16,
    "sched_yield": 24,
    "mremap": 25,
    "mincore": 27,
    "madvise": 28,
    "prctl": 157,
    "sched_getaffinity": 204,
    "timer_create": 222,
    "timer_settime": 223,
    "timer_gettime": 224,
    "timer_delete": 226,
    "tgkill": 234,
    "fallocate": 285,
    "pwritev": 296,
    "process_vm_readv": 310,
    "memfd_create": 319,
    "statx": 332,
    "clone3": 435,
    "close_range": 436,
}
# Without these there are no time samples on CPython. The line says so.
FOR_TIME = {call: call for call in ("timer_create", "process_vm_readv", "memfd_create")}
# Without this there is no session on PyPy.
FOR_PYPY = {"memfd_create": "memfd_create"}
# Without this PyPy's code cannot be changed, which time samples need.
FOR_TIME_ON_PYPY = {"mremap": "does not let code pages be changed"}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86-64")
@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS])
def test_the_program_runs_or_one_line_says_why_not(
    error: int, interpreter: Interpreter, tmp_path: Path
) -> None:
    if interpreter.tree is not None:
        pytest.skip("one Debian is enough: the calls are the kernel's")
    (tmp_path / "app.py").write_text(PROGRAM)
    for_any, for_time = (FOR_PYPY, FOR_TIME_ON_PYPY) if interpreter.is_pypy else ({}, dict(FOR_TIME))
    if error == errno.ENOSYS:
        # Where the call is missing, as in emulators, the memory's file is read.
        for_time.pop("process_vm_readv", None)
    for call, number in CALLS.items():
        if call == "clone3" and error == errno.EPERM:
            # The C library makes no thread then, for no program: it falls back on `clone` where the call is missing.
            continue
        # Time samples make more calls, and without them there is nothing else to see where they are possible.
        for options in [["--cpu"], []] if call in for_time else [["--cpu"]]:
            words = ["run", *options, "--every", "16K", "-f", "-o", "out.nthb", "app.py"]
            done = interpreter.python(*refusing(number, error), "-m", "nthbyte", *words, folder=tmp_path)
            is_refused = call in for_any or (options and call in for_time)
            assert (done.status, done.out) == ((1, "") if is_refused else (0, OUTPUT)), (call, options, done)
            assert len(done.err.splitlines()) == 1 and done.err.startswith("nthbyte: "), (call, done.err)
            if is_refused:
                assert {**for_any, **for_time}[call] in done.err
            else:
                # Without hooks, PyPy has a sample for some of its minor collections.
                least = 1 if interpreter.is_pypy and call in for_time else 200
                assert summary(tmp_path / "out.nthb")["samples"] >= least, (call, options)
