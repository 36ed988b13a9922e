"""The program's malloc decides as without nthbyte."""

from __future__ import annotations

from pathlib import Path

from harness import Interpreter, run

# glibc gives a large block a mapping of its own, unless a larger one was freed before. nthbyte frees some while it
# starts and while it writes.
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
