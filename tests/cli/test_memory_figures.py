"""The peak of RSS is the kernel's, and the memory in use is all of Python's."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Interpreter, firefox, report, summary

SIZE = 200 << 20

HEAD = f"""
import ctypes, mmap
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
size = {SIZE}
"""

TAIL = """
import resource
with open("/proc/self/status") as file:
    [peak] = [int(line.split()[1]) for line in file if line.startswith("VmHWM")]
print(peak << 10, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
"""

PROGRAMS = {
    "malloc that is freed": "block = libc.malloc(size); libc.memset(block, 1, size); libc.free(block)",
    "a mapping": "kept = mmap.mmap(-1, size); kept.write(b'x' * (size // 2))",
    "one large object": "kept = b'x' * size",
    "objects of 3 kB": "kept = [b'x' * (3000 + n % 7) for n in range(size // 3000)]",
    "small objects": "kept = [[n] for n in range(1_500_000)]",
    "a thread": (
        "import threading\n"
        "def work():\n    block = libc.malloc(size); libc.memset(block, 1, size)\n"
        "thread = threading.Thread(target=work); thread.start(); thread.join()"
    ),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_peak_rss(program: str, interpreter: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(HEAD + PROGRAMS[program] + TAIL)
    profile = tmp_path / "out.nthb"
    # The memory in use is estimated from samples: with this period, to 1 %.
    done = interpreter.nthbyte("run", "--every", "16K", "-q", "-o", profile, "app.py", folder=tmp_path).ok()
    peak, largest = map(int, done.out.split())
    found = summary(profile)
    assert 0.98 * largest <= found["peak_rss"] <= 1.02 * max(peak, largest)
    [process] = found["processes"]
    assert process["peak_rss"] == found["peak_rss"]
    assert "peak RSS " in report("summary", profile, folder=tmp_path).ok().out
    if program.startswith(("one large", "objects")):
        assert process["peak_heap_used"] > 0.9 * SIZE
        used, reserved = (_total(profile, name) for name in ("Heap used", "Heap reserved"))
        assert 0.9 * SIZE < used <= reserved


def _total(profile: Path, name: str) -> int:
    """The last value of a memory track."""
    [counter] = [counter for counter in firefox(profile)["counters"] if counter["name"] == name]
    return int(sum(counter["samples"]["count"]))


KILLED = (
    HEAD
    + """
import os, signal, sys, time
block = libc.malloc(size)
libc.memset(block, 1, size)
def written():
    with open("out.nthb", "rb") as file:
        return file.read().count(bytes.fromhex("f56e626b"))
before = written()
# The first blocks may have readings from before the peak.
while written() < before + 4:
    kept = [[n] for n in range(1000)]
os.kill(os.getpid(), signal.SIGKILL)
"""
)


def test_a_killed_program_has_its_peak(interpreter: Interpreter, tmp_path: Path) -> None:
    interpreter.nthbyte("run", "--every", "1K", "-q", "-o", "out.nthb", "-c", KILLED, folder=tmp_path)
    found = summary(tmp_path / "out.nthb")
    assert not found["complete"]
    assert found["peak_rss"] > SIZE


TERMINATED = """
import multiprocessing, time
def work(pipe):
    kept = [[n] for n in range(50_000)]
    pipe.send(1)
    time.sleep(600)
if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    one, other = multiprocessing.Pipe()
    process = multiprocessing.Process(target=work, args=(other,))
    process.start()
    one.recv()
    process.terminate()
    process.join()
    print(process.pid, process.exitcode)
"""


def test_a_process_that_sigterm_ends_is_complete(interpreter: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(TERMINATED)
    done = interpreter.nthbyte("run", "--every", "1K", "-o", "out.nthb", "app.py", folder=tmp_path).ok()
    pid, status = map(int, done.out.split())
    assert status == -15
    child = tmp_path / f"out.{pid}.nthb"
    found = summary(child)
    assert found["complete"] and found["samples"] > 1000
    assert [note for note in found["notes"] if "was ended by SIGTERM" in note]
    assert "killed" not in report("summary", child, folder=tmp_path).ok().out


FULL = """
set -e
mkdir disk && mount -t tmpfs -o size={room} tmpfs disk
"$@" || echo "status $?"
cp disk/out.nthb . && umount disk
"""


def test_a_full_disk_is_said(cpython: Interpreter, tmp_path: Path) -> None:
    import os

    if os.geteuid() != 0 or cpython.tree is not None:
        pytest.skip("only root can mount a small disk")
    from harness import run

    program = "kept = [[(n, str(n))] for n in range(300_000)]"
    words = cpython.words(
        ["-m", "nthbyte", "run", "--every", "64", "-o", "disk/out.nthb", "-c", program], tmp_path
    )
    shell = ["unshare", "--mount", "sh", "-c", FULL.format(room="256k"), "sh"]
    done = run([*shell, *words], tmp_path).ok()
    assert "status" not in done.out
    assert "no space left" in done.err
    found = summary(tmp_path / "out.nthb")
    [process] = found["processes"]
    assert not found["complete"] and found["samples"] > 0
    assert "the disk was full" in process["ended_by"]
    shown = report("summary", tmp_path / "out.nthb", folder=tmp_path).ok().out
    assert "the disk was full" in shown and "killed" not in shown
