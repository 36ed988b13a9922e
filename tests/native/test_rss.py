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


# The second size is sampled, the first one is not.
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
    words = ["run", "-q", "--every", "64MiB", "-o", "out.nthb", "app.py"]
    peak = 1024 * int(interpreter.nthbyte(*words, folder=tmp_path).ok().out)
    assert peak < 300 << 20
    words = [str(COMMAND), "summary", "--json", "--domain", "native", "out.nthb"]
    assert json.loads(run(words, tmp_path).ok().out)["samples"] > 0
