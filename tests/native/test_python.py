"""Native memory of Python programs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from harness import REPOSITORY, Done, Interpreter, run, summary

NUMPY = REPOSITORY / "build" / "native" / "bin" / "python"

HEADER = """
import ctypes, threading
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]

def allocate(count, size):
    return [libc.malloc(size) for _ in range(count)]
"""


def _profile(interpreter: Interpreter, folder: Path, program: str, *options: str, **more: Any) -> Any:
    (folder / "app.py").write_text(HEADER + program)
    done = interpreter.nthbyte(
        "run", "--native", *options, "-o", "out.nthb", "app.py", folder=folder, **more
    ).ok()
    assert "native memory is not recorded" not in done.err, done.err
    return done


def _rows(folder: Path, by: str, *options: str) -> dict[str, Any]:
    found = summary(folder / "out.nthb", "--by", by, *options)
    return {row["name"]: row for row in found["rows"]}


def _is_within(estimate: Any, truth: float) -> bool:
    """Whether the truth is within three times the 95 % interval: six standard deviations."""
    low = estimate["estimate"] - 3 * (estimate["estimate"] - estimate["low"])
    high = estimate["estimate"] + 3 * (estimate["high"] - estimate["estimate"])
    return bool(low <= truth <= high)


@pytest.mark.parametrize("period", ["1", "4K", "64K"])
def test_known_sizes(period: str, cpython: Interpreter, tmp_path: Path) -> None:
    program = """
def kept(): return allocate(2000, 30_000)
def freed():
    for block in allocate(2000, 20_000): libc.free(block)
blocks = kept()
freed()
"""
    _profile(cpython, tmp_path, program, "--every", period)
    rows = _rows(tmp_path, "function", "--domain", "native")
    for name, bytes_allocated in (("kept", 60_000_000), ("freed", 40_000_000)):
        assert _is_within(rows[name]["total_bytes"], bytes_allocated), (name, rows[name])
    found = summary(tmp_path / "out.nthb", "--domain", "native", "--by", "type")
    [malloc] = [row for row in found["rows"] if row["name"] == "malloc"]
    if period == "1":
        # Python itself calls malloc a little.
        assert 100_000_000 <= malloc["self_bytes"]["estimate"] < 100_500_000
    else:
        assert _is_within(malloc["self_bytes"], 100_000_000)
        assert _is_within(found["all"]["still_live"], 60_000_000)


def test_nothing_is_counted_twice(cpython: Interpreter, tmp_path: Path) -> None:
    """Large objects come from malloc, and are objects."""
    program = """
import json
def build(): return [bytes(100_000) for _ in range(300)] + [list(range(300)) for _ in range(300)]
def grow():
    data = bytearray()
    for _ in range(2000): data += b"x" * 1000
    return data
kept = build(), grow()
"""
    _profile(cpython, tmp_path, program, "--every", "1")
    native = _rows(tmp_path, "function", "--domain", "native")
    for name in ("build", "grow"):
        assert native.get(name, {"total_bytes": {"estimate": 0}})["total_bytes"]["estimate"] < 20_000, native
    python = _rows(tmp_path, "function", "--domain", "python")
    both = _rows(tmp_path, "function")
    for name in ("build", "grow"):
        assert python[name]["total_bytes"]["estimate"] > 2_000_000
        assert both[name]["total_bytes"]["estimate"] < python[name]["total_bytes"]["estimate"] + 20_000


def test_threads(cpython: Interpreter, tmp_path: Path) -> None:
    """Threads with the GIL, without it, and threads that Python does not know."""
    program = """
ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(("malloc", libc))

def in_thread(): allocate(1000, 50_000)

threads = [threading.Thread(target=in_thread) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()

# A foreign thread: its first function is malloc itself, with the size as its argument.
libc.pthread_create.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
libc.pthread_join.argtypes = [ctypes.c_ulong, ctypes.c_void_p]
for _ in range(20):
    thread = ctypes.c_ulong()
    libc.pthread_create(ctypes.byref(thread), None, ctypes.cast(libc.malloc, ctypes.c_void_p), 10_000_000)
    libc.pthread_join(thread, None)
"""
    _profile(cpython, tmp_path, program, "--every", "64K")
    rows = _rows(tmp_path, "function", "--domain", "native")
    assert _is_within(rows["in_thread"]["total_bytes"], 200_000_000)
    # A block of 10 MB is missed once in 10^66 times.
    assert 200_000_000 <= rows["[no Python frame]"]["total_bytes"]["estimate"] < 202_000_000, rows


def test_mappings(cpython: Interpreter, tmp_path: Path) -> None:
    program = """
import mmap
def mapped(): return [mmap.mmap(-1, 10_000_000, flags=mmap.MAP_PRIVATE) for _ in range(10)]
kept = mapped()
for one in mapped(): one.close()
"""
    _profile(cpython, tmp_path, program, "--every", "64K")
    found = summary(tmp_path / "out.nthb", "--domain", "native", "--by", "type")
    [row] = [row for row in found["rows"] if row["name"] == "mmap"]
    assert 200_000_000 <= row["self_bytes"]["estimate"] < 202_000_000


def test_forks(cpython: Interpreter, tmp_path: Path) -> None:
    program = """
import os
kept = allocate(500, 100_000)
def after(): return allocate(700, 100_000)
pid = os.fork()
if pid == 0:
    for block in kept: libc.free(block)
    after()
    os._exit(0)
os.waitpid(pid, 0)
print(pid)
"""
    done = _profile(cpython, tmp_path, program, "--every", "64K")
    parent = summary(tmp_path / "out.nthb", "--domain", "native")
    child = summary(tmp_path / f"out.{done.out.split()[0]}.nthb", "--domain", "native")
    assert _is_within(parent["all"]["still_live"], 50_000_000)
    assert _is_within(child["all"]["still_live"], 70_000_000)


SPAWN = """
import multiprocessing

def work(number):
    return len(allocate(300, 100_000)) + number

if __name__ == "__main__":
    with multiprocessing.get_context("{method}").Pool(1) as pool:
        pool.map(work, [1])
        pool.close()
        pool.join()
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_of_multiprocessing(method: str, cpython: Interpreter, tmp_path: Path) -> None:
    _profile(cpython, tmp_path, SPAWN.format(method=method), "--every", "64K")
    [child] = [path for path in tmp_path.glob("out.*.nthb")]
    assert _is_within(summary(child, "--domain", "native")["all"]["bytes"], 30_000_000)


SELF = """
import json, os, subprocess, sys
names = ("LD_PRELOAD", "NTHBYTE_PRELOAD")
child = subprocess.run(["/usr/bin/env"], capture_output=True, text=True).stdout
print(json.dumps([sys.argv, sys.flags.dev_mode, {name: os.environ.get(name) for name in names},
                  [line for line in child.splitlines() if line.startswith(names)]]))
"""


@pytest.mark.parametrize("before", [None, "libm.so.6"])
def test_the_program_sees_its_own_environment(
    before: str | None, cpython: Interpreter, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(SELF)
    environment = {} if before is None else {"LD_PRELOAD": before}
    words = ("run", "--native", "-o", "out.nthb", "app.py", "--native", "a b")
    done = cpython.nthbyte(*words, folder=tmp_path, flags=("-X", "dev"), environment=environment).ok()
    argv, dev_mode, own, of_child = json.loads(done.out)
    assert argv == ["app.py", "--native", "a b"]
    assert dev_mode
    assert own == {"LD_PRELOAD": before, "NTHBYTE_PRELOAD": None}
    assert of_child == [f"LD_PRELOAD={before}"] * (before is not None)
    # An argument of the program is not ours.
    assert "native memory" not in done.err


def test_it_is_left_out_unless_wanted(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(HEADER + "blocks = allocate(1000, 100_000)\n")
    cpython.nthbyte("run", "--every", "64K", "-o", "out.nthb", "app.py", folder=tmp_path).ok()
    assert summary(tmp_path / "out.nthb", "--domain", "native")["samples"] == 0


def test_a_second_start_happens_once(cpython: Interpreter, tmp_path: Path) -> None:
    """If the library was not loaded, the program runs without it, and the last line says so."""
    environment = {"NTHBYTE_PRELOAD": "", "LD_PRELOAD": "libm.so.6"}
    done = cpython.nthbyte(
        "run", "--native", "-o", "out.nthb", "-c", "print(1)", folder=tmp_path, environment=environment
    ).ok()
    assert done.out == "1\n"
    assert "native memory is not recorded: the dynamic linker did not load the library" in done.err


ARRAYS = """
import numpy

def one():
    return numpy.ones(10_000_000 // 8)

def two(a):
    return a * 2 + a  # one temporary

kept = one()
for _ in range(30):
    kept = two(kept)
"""


def with_numpy(program: str, folder: Path, *options: str) -> Done:
    """Profiles a program with the interpreter that has NumPy and pandas."""
    if not NUMPY.exists():
        pytest.skip("make test-native installs NumPy and pandas")
    (folder / "app.py").write_text(program)
    environment = {"PYTHONPATH": str(REPOSITORY / "build" / "site"), "PATH": os.environ["PATH"]}
    words = [str(NUMPY), "-m", "nthbyte", "run", *options, "-o", "out.nthb", "app.py"]
    return run(words, folder, environment=environment).ok()


def test_numpy(tmp_path: Path) -> None:
    """Arrays of known sizes, at their lines, temporaries too."""
    with_numpy(ARRAYS, tmp_path, "--native", "--every", "64K")
    found = summary(tmp_path / "out.nthb", "--by", "line", "--domain", "native")
    rows = {(row["name"], row["line"]): row["total_bytes"]["estimate"] for row in found["rows"]}
    assert rows["one", 5] == pytest.approx(10_000_000, rel=0.01)
    # NumPy reuses the temporary for the sum, if it can: one or two arrays in each round.
    assert 299_000_000 < rows["two", 8] < 606_000_000


PEAKS = {
    "an array": "import numpy\narray = numpy.ones(200_000_000 // 8)\n",
    "an array that is freed": (
        "import numpy\narray = numpy.ones(200_000_000 // 8)\ndel array\narray = numpy.zeros(8)\n"
    ),
    "a frame": (
        "import numpy, pandas\n"
        "frame = pandas.DataFrame({'key': numpy.arange(2_000_000) % 1000, 'value': numpy.arange(2_000_000.0)})\n"
        "sums = frame.groupby('key').value.sum()\n"
        "joined = frame.merge(sums.rename('sum'), on='key')\n"
        "names = joined.key.map(lambda key: f'the key {key}')\n"
    ),
}
SAY_PEAK = """
import resource
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
"""


@pytest.mark.parametrize("program", PEAKS)
@pytest.mark.parametrize("native", [(), ("--native",)])
def test_peak_rss_of_arrays(native: tuple[str, ...], program: str, tmp_path: Path) -> None:
    done = with_numpy(PEAKS[program] + SAY_PEAK, tmp_path, *native)
    assert summary(tmp_path / "out.nthb")["peak_rss"] == pytest.approx(int(done.out), rel=0.02)
