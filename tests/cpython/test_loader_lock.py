"""The lock of ``dl_iterate_phdr``: a thread that holds it may wait for Python's lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Interpreter

# A thread looks at the loaded libraries all the time, as threadpoolctl does. Its callback needs Python's lock. The
# first session loads libraries, for which the dynamic linker takes its lock in any case.
LOOKING = """
import ctypes, nthbyte, threading, time

Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
iterate = ctypes.CDLL(None).dl_iterate_phdr

def visit(image, size, data):
    time.sleep(0.001)
    return 0

def look():
    callback = Callback(visit)
    while not done:
        iterate(callback, None)

def record():
    nthbyte.start("out.nthb", force=True, native={native})
    keep = [bytes(1000) for _ in range(1000)]
    nthbyte.stop()

done = False
record()
thread = threading.Thread(target=look)
thread.start()
for _ in range(50):
    record()
done = True
thread.join()
print("well")
"""


@pytest.mark.parametrize("native", [False, True])
def test_a_session_takes_no_lock_of_the_dynamic_linker(
    native: bool, cpython: Interpreter, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(LOOKING.format(native=native))
    # The limit is only for a program that hangs.
    assert cpython.python("app.py", folder=tmp_path, timeout=600).ok().out == "well\n"
