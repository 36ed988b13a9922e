"""Stacks of PyPy: compiled code, recursion, greenlets."""

from __future__ import annotations

from pathlib import Path

import harness
from harness import Interpreter

# Functions with a loop that is compiled, or inlined, and one that is compiled as a whole. None calls itself.
LOOPS = """
def inner(i):
    return ["s%d" % i] * 20

def loop(i):
    for j in range(3):
        x = [j] * i

def alpha():
    for i in range(200_000):
        x = [bytearray(100) for _ in range(3)]
        inner(i)
        loop(i % 7)

alpha()
"""

# A function that calls itself.
RECURSION = """
def walk(depth):
    x = [depth] * 20
    if depth:
        walk(depth - 1)
        walk(depth - 1)

for _ in range(30):
    walk(11)
"""


def _pairs(pypy: Interpreter, folder: Path, program: str) -> set[tuple[str, str]]:
    """Which function has called which."""
    (folder / "app.py").write_text(program)
    words = ["run", "-q", "--every", "16KiB", "-o", "out.nthb", "app.py"]
    pypy.nthbyte(*words, folder=folder).ok()
    harness.report("export", "--to", "collapsed", "-f", "-o", "out.txt", "out.nthb", folder=folder).ok()
    lines = (folder / "out.txt").read_text().splitlines()
    stacks = [[frame.split(" ")[0] for frame in line.rpartition(" ")[0].split(";")] for line in lines]
    return {pair for stack in stacks for pair in zip(stack, stack[1:], strict=False)}


def test_a_function_with_a_compiled_loop_is_not_its_own_caller(pypy: Interpreter, tmp_path: Path) -> None:
    """The interpreter enters machine code in the frame that it runs; inlined code goes on in its loop: one frame."""
    pairs = _pairs(pypy, tmp_path, LOOPS)
    assert ("alpha", "inner") in pairs and ("alpha", "loop") in pairs
    functions = ("alpha", "inner", "loop", "<listcomp>")
    assert not [pair for pair in pairs if pair[0] == pair[1] and pair[0] in functions]


def test_a_recursion_stays_one(pypy: Interpreter, tmp_path: Path) -> None:
    assert ("walk", "walk") in _pairs(pypy, tmp_path, RECURSION)


# Greenlets that switch, as gevent's do: PyPy copies their stacks into memory of malloc.
GREENLETS = """
from greenlet import greenlet

def work():
    while True:
        hub.switch()

def loop():
    one, other = greenlet(work, parent=hub), greenlet(work, parent=hub)
    for _ in range(60_000):
        one.switch()
        other.switch()

hub = greenlet(loop)
hub.switch()
"""


def test_copies_of_stacks_belong_below_the_switch(pypy: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(GREENLETS)
    words = ["run", "-q", "--native", "--every", "64KiB", "-o", "out.nthb", "app.py"]
    pypy.nthbyte(*words, folder=tmp_path).ok()
    found = harness.summary(tmp_path / "out.nthb", "--domain", "native", "--by", "function")
    bytes_of = {row["name"]: row["total_bytes"]["estimate"] for row in found["rows"]}
    assert bytes_of["work"] > 0.2 * found["all"]["bytes"]["estimate"]
    assert bytes_of["loop"] > 0.2 * found["all"]["bytes"]["estimate"]
    assert bytes_of.get("[no Python frame]", 0) < 0.05 * found["all"]["bytes"]["estimate"]


def test_a_later_session_knows_what_was_compiled_in_an_earlier_one(pypy: Interpreter, tmp_path: Path) -> None:
    """PyPy writes the name of a code that is made while it walks stacks only once."""
    program = """
import nthbyte

kept = []
source = "def made(kept):\\n    for _ in range(50):\\n        kept.append([None] * 20_000)\\n"
with nthbyte.Profiler("first.nthb", every="64KiB"):
    exec(source, globals())
with nthbyte.Profiler("second.nthb", every="64KiB"):
    made(kept)
"""
    pypy.python("-c", program, folder=tmp_path).ok()
    names = {row["name"] for row in harness.summary(tmp_path / "second.nthb")["rows"]}
    assert "made" in names and "(code without a name)" not in names
