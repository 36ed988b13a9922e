"""The agent in a CPython without the GIL: what memory is used for, who allocates, forks, other interpreters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness import Interpreter, is_near, report, summary

from .test_agent import KNOWN, all_are_near, recorded, rows

MIB = 1 << 20


def memory(profile: Path) -> dict[str, float]:
    """Returns what the resident set is made of at the end, in bytes."""
    found = json.loads(report("memory", "--json", "--at", "end", profile, folder=profile.parent).ok().out)
    assert not any("could not be read" in note for note in found["notes"]), found["notes"]
    parts = {row["key"]: row["bytes"]["estimate"] for row in found["rows"]}
    assert sum(parts.values()) == pytest.approx(found["rss"], abs=2)
    return {**parts, "rss": found["rss"]}


# The program rests, so that its last composition is of what it keeps.
KEPT = """
large = bytearray(b"x") * (60 << 20)
small = [Slots() for _ in range(300_000)]
mine = {"large": sys.getsizeof(large), "small": 300_000 * size(Slots()) + sys.getsizeof(small)}
time.sleep(0.5)
tell(mine)
"""


def test_the_resident_set_is_what_objects_take(threaded: Interpreter, tmp_path: Path) -> None:
    _, told = recorded(threaded, tmp_path, KEPT)
    found = memory(tmp_path / "out.nthb")
    # An interpreter has some megabytes of its own.
    assert sum(told["truth"].values()) < found["objects"] < sum(told["truth"].values()) + 16 * MIB, found
    assert found.get("mappings", 0) + found.get("before", 0) < 6 * MIB, found
    assert found.get("unknown", 0) <= 0.03 * found["rss"], found


FREED = """
def fill(kept):
    others = [Slots() for _ in range(400_000)]
    kept.extend(others[::200])
    return (400_000 - len(kept)) * size(Slots())

kept = []
freed = fill(kept)
time.sleep(0.5)
tell({"freed": freed})
"""


def test_blocks_that_are_free_are_told_from_objects(threaded: Interpreter, tmp_path: Path) -> None:
    _, told = recorded(threaded, tmp_path, FREED)
    found = memory(tmp_path / "out.nthb")
    # Blocks are rounded up, and the lists have grown.
    freed = told["truth"]["freed"]
    assert freed < found["free_blocks"] < 1.2 * freed + 10 * MIB, found
    assert found["objects"] < 20 * MIB, found


# More than an arena of mimalloc has, so that it maps memory for it. A part is touched.
MAPPED = """
import mmap
kept = bytearray(1500 << 20)
kept[: 200 << 20 : 4096] = b"x" * (200 << 8)
theirs = mmap.mmap(-1, 90 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
theirs.write(b"x" * (90 << 20))
tell({})
"""


def test_what_mimalloc_maps_is_not_the_programs_mapping(threaded: Interpreter, tmp_path: Path) -> None:
    recorded(threaded, tmp_path, MAPPED)
    found = rows(tmp_path / "out.nthb", "--by", "type", "--domain", "native")
    assert found["mmap"]["self_bytes"]["estimate"] == pytest.approx(90 * MIB, rel=0.1)
    found = rows(tmp_path / "out.nthb", "--by", "type")
    assert found["bytearray buffer"]["self_bytes"]["estimate"] >= 1500 * MIB


# What is allocated for each object besides itself.
PARTS = """
def lists():
    kept = collections.deque([None] * 50 for _ in times(30_000))
    # The items have their number before them.
    return 30_000 * (size([None] * 50) - size([]) + 8)

def growing():
    for _ in times(3000):
        grown = []
        for _ in times(500):
            grown.append(None)

def sets():
    one = set(range(60))
    kept = collections.deque(one.copy() for _ in times(3000))
    return 3000 * (size(one.copy()) - size(set()))

def arrays():
    kept = collections.deque(bytearray(800) for _ in times(10_000))
    return 10_000 * 801

truth = {}
for function in lists, growing, sets, arrays:
    one = threading.Thread(target=lambda: truth.update({function.__name__: function()}), name=function.__name__)
    one.start()
    one.join()
tell(truth)
"""


def test_memory_is_named_by_who_allocates_it(threaded: Interpreter, tmp_path: Path) -> None:
    _, told = recorded(threaded, tmp_path, PARTS, "--every", "16K")
    for function, kind in (("lists", "list items"), ("sets", "set table"), ("arrays", "bytearray buffer")):
        found = rows(tmp_path / "out.nthb", "--by", "type", "--thread", function)
        assert is_near(found[kind]["self_bytes"], told["truth"][function]), (kind, found)
    found = rows(tmp_path / "out.nthb", "--by", "type", "--thread", "growing")
    assert found["list items"]["self_bytes"]["estimate"] > 0.9 * sum(
        row["self_bytes"]["estimate"] for row in found.values()
    )


BLOCKS = """
import nthbyte
blocks = sys.getallocatedblocks
nthbyte.start("blocks.nthb", force=True, every="16K")
wrong = []
gc.collect()
gc.disable()
for number in range(0, 4000, 97):
    before = blocks()
    kept = [Slots() for _ in range(number)]
    more = blocks() - before
    del kept
    if abs(more - number) > 20:
        wrong.append((number, more))
nthbyte.stop()
print(json.dumps({"truth": wrong, "gil": sys._is_gil_enabled()}))
"""


def test_the_count_of_blocks_is_as_without_it(threaded: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(KNOWN + BLOCKS)
    done = threaded.python("app.py", folder=tmp_path).ok()
    assert json.loads(done.out)["truth"] == []


# A handler that sleeps for as many seconds as its signal has the number, also in the middle of a recording.
# The C library's fork does not stop the threads first.
STUCK = """
import ctypes
libc = ctypes.CDLL(None)
libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.signal(signal.SIGUSR1, ctypes.cast(libc.sleep, ctypes.c_void_p))
gc.disable()

def busy():
    while True:
        bytes(8000)

for attempt in range(60):
    other = threading.Thread(target=busy, daemon=True)
    other.start()
    time.sleep(0.05)
    signal.pthread_kill(other.ident, signal.SIGUSR1)
    time.sleep(0.05)
    begun = time.monotonic()
    child = libc.fork()
    if not child:
        some_bytes(100, forget)
        os._exit(0)
    has_waited = time.monotonic() - begun > 0.9
    os.waitpid(child, 0)
    if has_waited:
        break
os.write(1, json.dumps({"truth": [child, has_waited], "gil": False}).encode())
os._exit(0)
"""


def test_a_child_without_the_agent_says_so(threaded: Interpreter, tmp_path: Path) -> None:
    _, told = recorded(threaded, tmp_path, STUCK, "--every", "4K", "--no-native")
    child, has_waited = told["truth"]
    assert has_waited, "no thread was in the agent when it was interrupted"
    found = summary(tmp_path / f"out.{child}.nthb")
    assert any("forked while another thread recorded" in note for note in found["notes"]), found["notes"]
    assert found["lost"] > 10


INTERPRETERS = """
import _interpreters

CODE = '''
import itertools
class Slots:
    __slots__ = "a", "b", "c"
def in_interpreter():
    for _ in itertools.repeat(None, 30_000):
        Slots()
def kept_there():
    global kept
    kept = [bytes(900) for _ in itertools.repeat(None, 300)]
in_interpreter()
kept_there()
'''

def others(count):
    for _ in range(count):
        other = _interpreters.create()
        assert _interpreters.exec(other, CODE) is None
        _interpreters.destroy(other)
        some_slots(1000, forget)

others(5)
threads = [threading.Thread(target=others, args=(5,)) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
gc.collect()
each = size(Slots())
tell({"in_interpreter": 15 * 30_000 * each, "kept_there": 15 * 300 * size(bytes(900)), **work()})
"""


@pytest.mark.parametrize("period", [("--every", "4K"), ("--every", "64K")], ids=str)
def test_other_interpreters_are_sampled_and_may_end(
    period: tuple[str, ...], threaded: Interpreter, tmp_path: Path
) -> None:
    _, told = recorded(threaded, tmp_path, INTERPRETERS, *period)
    found = rows(tmp_path / "out.nthb")
    truth: dict[str, Any] = told["truth"]
    truth["some_slots"] += 15 * truth["in_interpreter"] // (15 * 30)
    if period[1] == "64K":
        del truth["kept_there"]
    all_are_near(found, truth)
    assert (
        found["in_interpreter"]["still_live"]["estimate"]
        < found["in_interpreter"]["self_bytes"]["estimate"] / 20
    )
