"""The Python API, called by a program."""

from __future__ import annotations

from pathlib import Path

from harness import Interpreter, summary

PROFILER = """
import nthbyte

def inside():
    return [bytes(1000 + n % 8) for n in range(4000)]

def outside():
    return [bytes(1000 + n % 8) for n in range(4000)]

outside()
with nthbyte.Profiler("one.nthb", every="4KiB", seed=7) as profiler:
    kept = inside()
outside()
result = profiler.result
assert result.path.endswith("/one.nthb"), result
assert result.samples > 500 and result.lost == 0, result
assert 4_000_000 < result.bytes_allocated < 6_000_000, result.bytes_allocated

# Again, with another period, and while blocks of the first session live.
nthbyte.start("two.nthb", every=64 * 1024)
del kept
kept = inside()
second = nthbyte.stop()
assert 20 < second.samples < 200, second
"""

ERRORS = """
import nthbyte

def refused(kind, part, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except kind as error:
        assert part in str(error) and "\\n" not in str(error), error
    else:
        raise AssertionError(part)

refused(nthbyte.Error, "not running", nthbyte.stop)
refused(ValueError, "out of range", nthbyte.start, "x.nthb", every=63)
refused(ValueError, "size", nthbyte.Profiler, "x.nthb", every="lots")
refused(nthbyte.Error, "does not exist", nthbyte.start, "missing/x.nthb")
nthbyte.start("x.nthb", force=True)
nthbyte.stop()
refused(nthbyte.Error, "not running", nthbyte.stop)
"""

SIGNALS = """
import signal, nthbyte
depth = 0

def interrupt(*_):
    # A service that starts and stops profiling on signals. On a slow machine each handler is interrupted again.
    global depth
    if depth == 3:
        return
    depth += 1
    for call in (lambda: nthbyte.start("other.nthb", force=True), nthbyte.stop):
        try:
            call()
        except nthbyte.Error:
            pass
    depth -= 1

interrupt()
signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
for _ in range(30):
    try:
        nthbyte.start("x.nthb", force=True)
        nthbyte.stop()
    except nthbyte.Error:
        pass
signal.setitimer(signal.ITIMER_REAL, 0)
interrupt()
nthbyte.start("x.nthb", force=True)
nthbyte.stop()
"""

THREADS = """
import threading, nthbyte

def in_thread(function, *arguments):
    thread = threading.Thread(target=function, args=arguments)
    thread.start()
    thread.join()

def work():
    return [bytes(1000 + n % 8) for n in range(4000)]

in_thread(lambda: nthbyte.start("out.nthb", every="64KiB"))
in_thread(work)
work()
assert nthbyte.stop().samples > 0
"""

TRACEMALLOC = """
import tracemalloc, nthbyte
tracemalloc.start()
try:
    nthbyte.start("x.nthb", force=True)
except nthbyte.Error as error:
    assert "tracemalloc" in str(error)
else:
    raise AssertionError
tracemalloc.stop()
nthbyte.start("x.nthb", every=64)
tracemalloc.start()
kept = [bytes(n) for n in range(600)]
tracemalloc.stop()
nthbyte.stop()
more = [bytes(n) for n in range(600)]
kept += [bytes(n) for n in range(600)]
assert all(len(block) == n for n, block in enumerate(kept[:600])) and kept[600:] == more
"""

FORGOTTEN = """
import nthbyte
nthbyte.start("out.nthb", every="1KiB")
kept = [bytes(1000 + n % 8) for n in range(4000)]
"""

# From 3.13 on, a call of a class that was made often has a frame before the one of `__init__`.
IN_INIT = """
import nthbyte

class App:
    def __init__(self, starts):
        if starts:
            nthbyte.start("out.nthb", every="4KiB")
            self.kept = [bytes(1000 + n % 8) for n in range(4000)]

def make(starts):
    return App(starts)

for _ in range(100):
    make(False)
make(True)
assert nthbyte.stop().samples > 500
"""

OFTEN = """
import nthbyte, random
random.seed(1)
kept = {}
for number in range(60):
    with nthbyte.Profiler("out.nthb", force=True, every=random.choice([1, 64, 512, 4096, 1 << 20])) as profiler:
        for _ in range(300):
            kept[random.randrange(500)] = bytes(random.randrange(1200))
    for _ in range(100):
        kept.pop(random.randrange(500), None)
    assert profiler.result.lost == 0
assert all(type(block) is bytes and not any(block) for block in kept.values())
"""


BYTES = """
import os, nthbyte
nthbyte.start(os.fsencode("x.nthb"))
assert nthbyte.stop().path == os.path.abspath("x.nthb")
try:
    nthbyte.start(7)
except TypeError:
    pass
else:
    raise AssertionError
"""

RENAMED = """
import os, nthbyte, pathlib, warnings
note = pathlib.Path("old.nthb")
note.write_text("a note")
warnings.simplefilter("error")
for begin in (nthbyte.start, lambda path: nthbyte.Profiler(path).__enter__()):
    try:
        begin("old.nthb")
    except RuntimeWarning as warning:
        assert "the profile is" in str(warning), warning
    else:
        raise AssertionError
    assert sorted(os.listdir()) == ["app.py", "old.nthb"], os.listdir()
warnings.simplefilter("ignore")
nthbyte.start("old.nthb")
assert nthbyte.stop().path == os.path.abspath("old-2.nthb")
assert note.read_text() == "a note"
"""

REFUSED = """
import gc, os, nthbyte
callbacks, gc.callbacks = gc.callbacks, None
for _ in range(2):
    try:
        nthbyte.start("new.nthb")
    except nthbyte.Error as error:
        assert "garbage collector" in str(error), error
    else:
        raise AssertionError
    assert not os.path.exists("new.nthb")
gc.callbacks = callbacks
nthbyte.start("new.nthb")
assert os.path.samefile(nthbyte.stop().path, "new.nthb")
"""


def test_a_path_may_be_bytes(interpreter: Interpreter, tmp_path: Path) -> None:
    _run(interpreter, tmp_path, BYTES)
    assert summary(tmp_path / "x.nthb")["complete"]


def test_a_refused_start_leaves_no_file(cpython: Interpreter, tmp_path: Path) -> None:
    _run(cpython, tmp_path, REFUSED)


def test_after_a_warning_that_is_an_error_no_session_runs(interpreter: Interpreter, tmp_path: Path) -> None:
    _run(interpreter, tmp_path, RENAMED)


def test_profiler(cpython: Interpreter, tmp_path: Path) -> None:
    _run(cpython, tmp_path, PROFILER)
    one = summary(tmp_path / "one.nthb")
    names = {row["name"] for row in one["rows"]}
    assert "inside" in names
    assert "outside" not in names
    assert summary(tmp_path / "two.nthb")["period"] == 64 * 1024


def test_errors(interpreter: Interpreter, tmp_path: Path) -> None:
    _run(interpreter, tmp_path, ERRORS)


def test_signal_handlers_may_start_and_stop(interpreter: Interpreter, tmp_path: Path) -> None:
    _run(interpreter, tmp_path, SIGNALS)


def test_tracemalloc_must_be_started_after_nthbyte(cpython: Interpreter, tmp_path: Path) -> None:
    _run(cpython, tmp_path, TRACEMALLOC)


def test_start_and_stop_in_different_threads(interpreter: Interpreter, tmp_path: Path) -> None:
    _run(interpreter, tmp_path, THREADS)
    assert "work" in {row["name"] for row in summary(tmp_path / "out.nthb")["rows"]}


def test_the_profile_is_complete_without_stop(interpreter: Interpreter, tmp_path: Path) -> None:
    _run(interpreter, tmp_path, FORGOTTEN)
    assert summary(tmp_path / "out.nthb")["complete"]


def test_the_first_session_begins_where_an_object_is_made(cpython: Interpreter, tmp_path: Path) -> None:
    _run(cpython, tmp_path, IN_INIT)
    assert "App.__init__" in {row["name"] for row in summary(tmp_path / "out.nthb")["rows"]}


def test_many_sessions_in_one_process(cpython: Interpreter, tmp_path: Path) -> None:
    _run(cpython, tmp_path, OFTEN)


def _run(interpreter: Interpreter, folder: Path, program: str) -> None:
    (folder / "app.py").write_text(program)
    done = interpreter.python("app.py", folder=folder).ok()
    assert done.err == ""
