"""What a program could lose by ``nthbyte attach``: its start, its main thread."""

from __future__ import annotations

from pathlib import Path

import pytest

import harness
from cpython.attaching import running

GOES = "import select, sys\ndef goes(): return not select.select([0], [], [], 0)[0]\n"


def test_a_process_that_starts_is_left_alone_until_it_has(
    cpython: harness.Interpreter, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys; print('here', flush=True); sys.stdin.readline()\n"
    )
    code = "import sys; print(sorted(name for name in sys.modules if name.startswith('nthbyte')), flush=True)\ninput()"
    with running(cpython, code, tmp_path, PYTHONPATH=str(tmp_path)) as one:
        refused = one.nthbyte("attach", "-o", "a.nthb", "--for", "0", "--timeout", "0.5")
        assert refused.status == 1 and refused.err.count("\n") == 1, refused.err
        one.say()
        assert one.line() == "here"
        assert one.line() == "[]"
        one.nthbyte("attach", "-o", "a.nthb", "--for", "0", "--timeout", "5min").ok()
        assert one.end("line\n").ok().err == ""


# The main thread is in C code without the GIL, so that the script runs in the other one.
WITHOUT_THREADING = """
import _thread, hashlib
main = _thread.get_ident()
lock = _thread.allocate_lock()
lock.acquire()
_thread.start_new_thread(lambda: (sys.stdin.readline(), lock.release()), ())
while lock.locked():
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", 2_000_000)
import threading
print(threading.main_thread().ident == main, threading.current_thread() is threading.main_thread())
"""


@pytest.mark.launcher
def test_the_main_thread_stays_the_main_thread(cpython: harness.Interpreter, tmp_path: Path) -> None:
    with running(cpython, GOES + WITHOUT_THREADING, tmp_path) as one:
        one.nthbyte("attach", "-o", "a.nthb", "--for", "0", "--timeout", "5min").ok()
        done = one.end("line\n").ok()
    assert (done.out, done.err) == ("True True\n", "")
