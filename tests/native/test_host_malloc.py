"""The program's malloc decides as without nthbyte."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Interpreter, run, summary

# glibc gives a large block a mapping of its own, unless a larger one was freed before. nthbyte frees some while it
# starts and while it writes. A few blocks of each size fill glibc's free blocks first: that depends on which modules
# Python has compiled.
PROGRAM = """
import ctypes, time

class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

libc = ctypes.CDLL(None)
libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
libc.mallinfo2.restype = Mallinfo2
end = time.process_time() + 1
while time.process_time() < end:
    [[n] for n in range(1000)]
for size in (600, 1200, 2500, 5000, 10000, 20000):
    for _ in range(8):
        before = libc.mallinfo2().hblks
        libc.malloc(size << 10)
    print(size, libc.mallinfo2().hblks - before)
"""


def test_large_blocks_of_the_program_are_mappings_as_before(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    plain = run(cpython.words(["app.py"], tmp_path), tmp_path).ok().out
    profiled = cpython.nthbyte("run", "-q", "-o", "out.nthb", "app.py", folder=tmp_path).ok().out
    assert "20000 1" in plain
    assert profiled == plain


# Its functions have an old version only, which dlsym does not find. Where it checks, it maps large blocks with its lock
# held.
CHECKING = Path("/lib/x86_64-linux-gnu/libc_malloc_debug.so.0")
LARGE = """
import zlib
kept = [bytes(1_000_000 + number % 7) for number in range(60)]
for number in range(300):
    zlib.compressobj()
print(len(kept))
"""


@pytest.mark.parametrize("check", [0, 3])
def test_a_malloc_that_checks_itself(check: int, interpreter: Interpreter, tmp_path: Path) -> None:
    if interpreter.tree is not None or not CHECKING.exists():
        pytest.skip("there is no such library")
    (tmp_path / "app.py").write_text(LARGE)
    environment = {"LD_PRELOAD": str(CHECKING), "GLIBC_TUNABLES": f"glibc.malloc.check={check}"}
    command = ["-m", "nthbyte", "run", "-q", "--every", "64KiB", "-o", "out.nthb", "app.py"]
    words = interpreter.words(command, tmp_path)
    done = run(words, tmp_path, environment=environment, idle=60).ok()
    assert (done.out, done.err) == ("60\n", "")
    if interpreter.is_pypy:
        # Its libz binds functions at the first call, and two libraries define them: that is left alone.
        return
    # Each compressor takes 268 KB.
    assert summary(tmp_path / "out.nthb", "--domain", "native")["samples"] > 100
