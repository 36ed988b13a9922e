"""What RSS is made of, against what a program measures itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from harness import COMMAND, Interpreter, run

INTERPRETER = Interpreter(sys.executable)

# Grows and shrinks, and ends after so many steps; says its RSS, and the bytes of each kind that it has in use.
PROGRAM = """
import ctypes, json, mmap, os, sys
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

def native():
    blocks = [libc.malloc(7000) for _ in range(100)]
    for block in blocks: libc.memset(block, 1, 7000)
    return blocks, 700_000

def mapping():
    one = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE)
    one.write(b"y" * (1 << 20))
    return one, 1 << 20

def large():
    one = b"x" * 700_000
    return one, sys.getsizeof(one)

def objects():
    every = [bytes(100) for _ in range(2000)]
    return every, sum(map(sys.getsizeof, every))

MAKE = {"native": native, "mappings": mapping, "large": large, "objects": objects}
held = {kind: [] for kind in MAKE}
STEPS = [("native", 30), ("objects", 60), ("large", 30), ("mappings", 20), ("objects", -50), ("native", -20),
         ("large", -20), ("mappings", -15), ("objects", 40)]
for kind, change in STEPS[: int(sys.argv[1])]:
    for _ in range(change): held[kind].append(MAKE[kind]())
    for _ in range(-change):
        gone, _ = held[kind].pop()
        if kind == "native":
            for block in gone: libc.free(block)
        elif kind == "mappings":
            gone.close()
        del gone
with open("/proc/self/statm") as file:
    rss = int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
print(json.dumps({"rss": rss, **{kind: sum(size for _, size in all) for kind, all in held.items()}}))
"""


@pytest.mark.parametrize("steps", range(1, 10))
def test_at_the_end_of_each_step(steps: int, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    words = ["run", "-o", "out.nthb", "--every", "1", "app.py", str(steps)]
    truth = json.loads(INTERPRETER.nthbyte(*words, folder=tmp_path).ok().out)
    words = [str(COMMAND), "memory", "--json", "--at", "end", "out.nthb"]
    found = json.loads(run(words, tmp_path).ok().out)
    rows = {row["key"]: row["bytes"]["estimate"] for row in found["rows"]}
    rss = found["rss"]
    assert abs(rss - truth["rss"]) < 0.03 * truth["rss"] + (1 << 20)
    assert rows.get("unknown", 0) < 0.03 * rss, (rows, truth, found["notes"])
    # Besides, there is what the interpreter itself has: modules, buffers, the lists above.
    for kind in ("native", "mappings", "large", "objects"):
        assert -0.01 * rss < rows.get(kind, 0) - truth[kind] < 0.03 * rss + (4 << 20), (kind, rows, truth)


GROWS = """
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
libc.realloc.argtypes, libc.realloc.restype = [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_void_p
block = libc.malloc(100_000)
ctypes.memset(block, 7, 100_000)
block = libc.realloc(block, 1 << 30)
assert ctypes.string_at(block, 100_000) == bytes([7]) * 100_000
with open("/proc/self/status") as file:
    print(*(line.split()[1] for line in file if line.startswith("VmHWM")))
"""


def test_a_block_that_grows_stays_untouched(interpreter: Interpreter, tmp_path: Path) -> None:
    """Where the program has not written, a sampled block takes no memory."""
    (tmp_path / "app.py").write_text(GROWS)
    words = ["run", "-q", "--every", "4KiB", "-o", "out.nthb", "app.py"]
    peak = 1024 * int(interpreter.nthbyte(*words, folder=tmp_path).ok().out)
    assert peak < 300 << 20
    words = [str(COMMAND), "summary", "--json", "--domain", "native", "out.nthb"]
    assert json.loads(run(words, tmp_path).ok().out)["samples"] > 0


# Reserves far more than it touches, in two ways; the touched part stays for a while, and then half of it is given back.
RESERVES = """
import ctypes, mmap, time
libc = ctypes.CDLL(None)
libc.calloc.argtypes, libc.calloc.restype = [ctypes.c_size_t, ctypes.c_size_t], ctypes.c_void_p

def mapped():
    one = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE)
    for at in range(0, 16 << 20, 4096): one[at] = 1
    return one

def cleared():
    block = libc.calloc(1 << 30, 1)
    ctypes.memset(block, 1, 8 << 20)
    return block

def gone():
    one = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE)
    for at in range(0, 4 << 20, 4096): one[at] = 1
    one.close()

kept = mapped(), cleared()
time.sleep(0.5)
gone()
kept[0].madvise(mmap.MADV_DONTNEED, 0, 8 << 20)
"""


def test_what_is_not_touched_is_no_memory(interpreter: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(RESERVES)
    interpreter.nthbyte("run", "-q", "--every", "64K", "-o", "out.nthb", "app.py", folder=tmp_path).ok()
    words = [str(COMMAND), "summary", "--json", "--domain", "native", "out.nthb"]
    found = {row["name"]: row for row in json.loads(run(words, tmp_path).ok().out)["rows"]}
    # A huge page may be more than what was touched of it. Of a mapping given back in part, the rest counts again.
    for name, allocated, again, alive in (("mapped", 16, 8, 8), ("cleared", 8, 0, 8), ("gone", 4, 0, 0)):
        row = found[name]
        assert allocated << 20 <= row["total_bytes"]["estimate"] < allocated + again + 5 << 20, (name, row)
        # PyPy calls C through functions of its own.
        if not (interpreter.is_pypy and name == "cleared"):
            assert alive << 20 <= row["alive"]["estimate"] < alive + 5 << 20, (name, row)
    for moment in ("peak", "end"):
        words = [str(COMMAND), "memory", "--json", "--at", moment, "out.nthb"]
        report = json.loads(run(words, tmp_path).ok().out)
        rows = {row["key"]: row["bytes"]["estimate"] for row in report["rows"]}
        assert "not_resident" not in rows or rows["not_resident"] > -(4 << 20), (moment, report)
        assert 0 < rows["mappings"] < 24 << 20 and rows["native"] < 24 << 20, (moment, report)


def test_shared_anonymous_memory_is_a_mapping(cpython: Interpreter, tmp_path: Path) -> None:
    """Not a part of the program, as its files are."""
    program = "import mmap\none = mmap.mmap(-1, 32 << 20)\none.write(bytes(32 << 20))\n"
    (tmp_path / "app.py").write_text(program)
    cpython.nthbyte("run", "-q", "-o", "out.nthb", "app.py", folder=tmp_path).ok()
    words = [str(COMMAND), "memory", "--json", "--at", "end", "out.nthb"]
    rows = {row["key"]: row["bytes"]["estimate"] for row in json.loads(run(words, tmp_path).ok().out)["rows"]}
    assert rows["mappings"] >= 32 << 20 and "shared" not in rows, rows


# Grows for half a second, and has a quarter of it for the rest of its time.
SHORT_PEAK = """
import time
def peak():
    kept = []
    for _ in range(48):
        kept.append([bytes(1000) for _ in range(4000)])
        time.sleep(0.01)
    time.sleep(2)
    return kept[:12]
kept = peak()
time.sleep(0.5)
"""


def test_a_short_peak_has_its_own_composition(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(SHORT_PEAK)
    cpython.nthbyte("run", "-q", "-o", "out.nthb", "app.py", folder=tmp_path).ok()
    words = [str(COMMAND), "memory", "--json", "out.nthb"]
    report = json.loads(run(words, tmp_path).ok().out)
    assert report["rss"] > 0.9 * report["peak_rss"], report
