"""Snapshots of who holds what: names and amounts, and that the program does not notice."""

from __future__ import annotations

import json
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from harness import Interpreter, report, summary
from held import of_service, snapshots

# The least and the most that each holds, in KiB: its texts, and what lies around them. Drawn blocks say it to a tenth.
HELD = {
    ".registry.entries": (625, 1000),
    ".render": (470, 720),
    "Bus.handlers['order']": (625, 1000),
    ".log.handlers[0].records": (310, 900),
    ".errors": (470, 900),
    ".head.next": (470, 1100),
    ".names": (470, 750),
    ".generator local buffer": (470, 700),
    ".config.rows": (470, 700),
    "thread call local scratch": (470, 700),
    ".inline.values": (470, 700),
    ".split.values": (470, 700),
    ".combined.values": (470, 700),
    ".slots.values": (470, 700),
    ".strong": (470, 700),
    ".local": (470, 700),
}


def test_each_holder_has_its_name_and_its_amount(cpython: Interpreter, tmp_path: Path) -> None:
    found = of_service(cpython, tmp_path, HELD)
    # Two keep the models, and two the tasks: each would be enough.
    shared = [found.path(node) for node in found.others]
    assert any(path.startswith((".by_key", ".recent")) for path in shared), shared
    assert any("tasks" in path or "event" in path for path in shared), shared
    # Half of the chain's 3000 nodes would be as many nodes here.
    assert len(found.nodes) < 12_000
    assert found.nobody < 0.05 * sum(found.held[:1] or [0]) + 200 * 1024
    # The recording's samples of blocks that live are joined to their holders.
    assert found.recorded > 10
    shown = json.loads(report("holders", "--json", "a.nthb", folder=tmp_path).ok().out)
    rows = {row["holder"]: row for row in shown["holders"]}
    expected = {
        "registry.entries",
        "class Bus.handlers['order']",
        "log.handlers[0].records",
        "errors",
        "config.rows",
    }
    assert expected <= set(rows), set(rows)
    assert rows["registry.entries"]["what"] == "dict of 400 Session"
    assert rows["errors"]["what"] == "list of 300 ValueError"


def test_keys_are_left_out_if_the_user_wants_that(cpython: Interpreter, tmp_path: Path) -> None:
    program = "kept = {'secret': ['%9d' % i for i in range(50_000)]}"
    for options, is_there in (((), True), (("--no-names",), False)):
        cpython.nthbyte(
            "run", "--holders", *options, "-f", "-o", "a.nthb", "-c", program, folder=tmp_path
        ).ok()
        # On a slow machine there is one of a new peak, too.
        found = snapshots(tmp_path / "a.nthb")[-1]
        assert (found.reason, found.outcome) == ("0", "complete")
        assert max(found.held[1:]) > 2 << 20
        # The name of a variable is no data.
        names = {node[4] for node in found.nodes}
        assert "kept" in names and ("'secret'" in names) == is_there


def test_by_default_it_is_taken_where_the_program_has_paid_for_it(
    cpython: Interpreter, tmp_path: Path
) -> None:
    program = "pass"
    cpython.nthbyte("run", "-o", "a.nthb", "-c", program, folder=tmp_path).ok()
    (found,) = snapshots(tmp_path / "a.nthb")
    assert (found.reason, found.outcome) == ("0", "none") and "processor time" in found.why
    # Two blocks for each element.
    large = "import nthbyte; kept = [[i] for i in range(200_000)]; print(nthbyte.snapshot())"
    done = cpython.nthbyte("run", "-f", "-o", "a.nthb", "-c", large, folder=tmp_path).ok()
    assert "1 % of what the program has used" in done.out
    last = snapshots(tmp_path / "a.nthb")[-1]
    assert last.outcome == "none" and "processor time" in last.why
    cpython.nthbyte("run", "--no-holders", "-o", "b.nthb", "-c", program, folder=tmp_path).ok()
    assert snapshots(tmp_path / "b.nthb") == []


def test_text_that_is_a_key_belongs_to_its_dictionary(cpython: Interpreter, tmp_path: Path) -> None:
    """CPython's own function does not visit keys where all of them are text."""
    program = "words = {('%9d' % i) * 20: i for i in range(10_000)}"
    cpython.nthbyte("run", "--holders", "-o", "a.nthb", "-c", program, folder=tmp_path).ok()
    shown = json.loads(report("holders", "--json", "a.nthb", folder=tmp_path).ok().out)
    held = {row["holder"]: row["bytes"]["estimate"] for row in shown["holders"]}
    # Texts of 230 bytes; numbers, and the table.
    assert 2.3e6 < held["words"] < 3.6e6, held


# A word of each `c_void_p` is the address of its block. An `int` has it in digits.
NATIVE = """
import ctypes
raw = ctypes.pythonapi.PyMem_RawMalloc
raw.restype, raw.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
def block(size):
    address = raw(size)
    ctypes.memset(address, 1, size)
    return address
mapped = [ctypes.c_void_p(block(400_000)) for _ in range(40)]
small = [ctypes.c_void_p(block(20_000)) for _ in range(500)]
lost = [block(400_000) for _ in range(20)] + [block(20_000) for _ in range(100)]
"""


def test_native_memory_belongs_to_the_object_that_has_its_address(
    cpython: Interpreter, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(NATIVE)
    cpython.nthbyte("run", "--every", "8KiB", "--holders", "-o", "a.nthb", "app.py", folder=tmp_path).ok()
    shown = json.loads(report("holders", "--json", "a.nthb", folder=tmp_path).ok().out)
    held = {row["holder"]: row["bytes"]["estimate"] / 1e6 for row in shown["holders"]}
    # With 1250 samples of `small`, the deviation is 0.3.
    assert 15.5 < held["mapped"] < 16.5 and 8.5 < held["small"] < 11.5, held
    native = sum(row["bytes"]["estimate"] for row in shown["besides"]["native"]) / 1e6
    # And what the interpreter itself has.
    assert 9 < native < 15, shown["besides"]
    told = report("holders", "a.nthb", folder=tmp_path).ok().out
    assert "native memory without a holder: " in told


# `counted` are the seconds of the processes that took snapshots, once they have ended.
WAITS = """
import threading
from nthbyte._agent import load
counted = load().snapshot_seconds

def work():
    seen = {counted()}
    while len(seen) < 3:
        cycle = []
        cycle.append([cycle, "%9d" % len(seen)])
        seen.add(counted())

# The main thread waits all the time: nothing runs in it.
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""

PEAKS = """
import gc, os, signal
from nthbyte._agent import load
counted = load().snapshot_seconds
gc.disable()
kept = ["%9d" % number for number in range(100_000)]
def until_more_than(seconds):
    while counted() <= seconds:
        ["%9d" % number for number in range(1000)]
    return counted()
seconds = until_more_than(0)
os.kill(os.getpid(), signal.SIGUSR2)
until_more_than(seconds)
"""


def test_it_is_taken_at_an_interval_also_while_the_main_thread_waits(
    cpython: Interpreter, tmp_path: Path
) -> None:
    options = ("run", "--holders", "--snapshot", "1s", "-o", "a.nthb")
    cpython.nthbyte(*options, "-c", WAITS, folder=tmp_path).ok()
    reasons = [found.reason for found in snapshots(tmp_path / "a.nthb")]
    assert "4" in reasons and reasons[-1] == "0"


def test_it_is_taken_at_a_new_peak_and_at_a_signal(cpython: Interpreter, tmp_path: Path) -> None:
    options = ("run", "--holders", "--snapshot", "USR2", "-o", "a.nthb")
    cpython.nthbyte(*options, "-c", PEAKS, folder=tmp_path).ok()
    found = snapshots(tmp_path / "a.nthb")
    assert [one.reason for one in found if one.reason != "1"] == ["3", "0"]
    assert found[0].reason == "1" and ".kept" in found[0].amounts()
    of_peak = json.loads(report("holders", "--json", "--at", "peak", "a.nthb", folder=tmp_path).ok().out)
    assert of_peak["holders"][0]["holder"] == "kept"


CRASHES = """
import ctypes, gc, os, time, nthbyte
gc.disable()
class Broken: pass
kept = [Broken() for _ in range(100)]
abort = ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value
traverse = ctypes.c_void_p.from_address(id(Broken) + 184)
own = traverse.value
def look():
    while (why := nthbyte.snapshot(force=True)) == "the one before is not finished":
        time.sleep(0.01)
    assert why is None, why
for broken in (abort, 4096):
    traverse.value = broken
    look()
traverse.value = own
# The type of an object.
word = ctypes.c_void_p.from_address(id(kept[0]) + 8)
of, word.value = word.value, 4096
look()
word.value = of
look()
try:
    print(os.waitpid(-1, 0))
except ChildProcessError:
    print("no child")
"""


def test_what_crashes_a_walk_does_not_reach_the_program(cpython: Interpreter, tmp_path: Path) -> None:
    done = cpython.nthbyte("run", "--no-holders", "-o", "a.nthb", "-c", CRASHES, folder=tmp_path).ok()
    assert done.out == "no child\n"
    said = [found.why for found in snapshots(tmp_path / "a.nthb") if "not finished" not in found.why]
    signals = [f"its process was ended by signal {number}" for number in (6, 11, 11)]
    assert said == [*signals, ""]


# An extension whose type looks at its objects in the way that is chosen, and that overwrites one with its link in the
# collector's list, while Python calls a function.
EXTENSION = """
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <string.h>

static volatile int way;

static int traverse(PyObject *self, visitproc visit, void *arg)
{
    char more[1000];
    Py_VISIT(Py_TYPE(self));
    switch (way) {
    case 1: *(volatile int *)8 = 1; break;
    case 2: more[999] = 1; return traverse(self, visit, arg) + more[999];
    case 3: for (;;) if (!way) break;
    case 4: for (;;) Py_VISIT(self);
    }
    return 0;
}

static PyObject *set_way(PyObject *module, PyObject *number)
{
    way = (int)PyLong_AsLong(number);
    Py_RETURN_NONE;
}

static PyObject *overwrite(PyObject *module, PyObject *arguments)
{
    PyObject *object, *called, *result;
    char before[32];
    if (!PyArg_ParseTuple(arguments, "OO", &object, &called)) return NULL;
    memcpy(before, (char *)object - 16, sizeof before);
    memset((char *)object - 16, 0xdb, sizeof before);
    result = PyObject_CallNoArgs(called);
    memcpy((char *)object - 16, before, sizeof before);
    return result;
}

static void dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyType_Slot slots[] = {{Py_tp_traverse, traverse}, {Py_tp_dealloc, dealloc}, {0, 0}};
static PyType_Spec spec = {
    "broken.Broken", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots
};
static PyMethodDef methods[] = {
    {"set_way", set_way, METH_O, 0}, {"overwrite", overwrite, METH_VARARGS, 0}, {0}
};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "broken", 0, -1, methods};

PyMODINIT_FUNC PyInit_broken(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module) PyModule_AddObject(module, "Broken", PyType_FromSpec(&spec));
    return module;
}
"""

# The choice counts for the copies only: no collection of the program looks at the objects meanwhile.
EXTENDED = """
import gc, os, sys, time, broken, nthbyte
gc.disable()
kept = [broken.Broken() for _ in range(1000)]

def look():
    while (why := nthbyte.snapshot(force=True)) == "the one before is not finished":
        time.sleep(0.01)
    return why

for way in map(int, sys.argv[1:]):
    if way == 9:
        assert broken.overwrite(kept[500], look) is None
    else:
        broken.set_way(way)
        assert look() is None
        broken.set_way(0)
nthbyte.stop()
try:
    print(os.waitpid(-1, 0))
except ChildProcessError:
    print("no child")
children = [open(f"/proc/self/task/{task}/children").read() for task in os.listdir("/proc/self/task")]
print("".join(children).split(), gc.collect() >= 0, len(gc.get_referrers(broken.Broken)) >= 1000)
"""


def extended(cpython: Interpreter, folder: Path, *ways: int) -> list[str]:
    """Why there is no snapshot, for each way in which the extension's type looks at its objects."""
    include = sysconfig.get_path("include")
    if shutil.which("cc") is None or not Path(include, "Python.h").exists():
        pytest.skip("there is no C compiler, or it has no headers of CPython")
    (folder / "broken.c").write_text(EXTENSION)
    words = ["cc", "-O0", "-w", "-shared", "-fPIC", "-I", include, "-o", "broken.abi3.so", "broken.c"]
    subprocess.run(words, cwd=folder, check=True)
    (folder / "app.py").write_text(EXTENDED)
    options = ("run", "-q", "--no-holders", "-o", "a.nthb")
    done = cpython.nthbyte(*options, "app.py", *map(str, ways), folder=folder).ok()
    assert done.out == "no child\n[] True True\n"
    return [found.why for found in snapshots(folder / "a.nthb") if "not finished" not in found.why]


def test_a_traverse_function_of_an_extension_that_crashes(cpython: Interpreter, tmp_path: Path) -> None:
    """It writes to no memory, or calls itself without end; then an object is overwritten; then all is well."""
    crashed = "its process was ended by signal 11"
    assert extended(cpython, tmp_path, 1, 2, 9, 0) == [crashed, crashed, crashed, ""]
    shown = report("holders", "a.nthb", folder=tmp_path).ok().out
    assert "kept" in shown
    (tmp_path / "b").mkdir()
    extended(cpython, tmp_path / "b", 1)
    told = report("holders", "a.nthb", folder=tmp_path / "b")
    assert told.status == 1 and crashed in told.err


@pytest.mark.slow
def test_a_traverse_function_of_an_extension_that_loops(cpython: Interpreter, tmp_path: Path) -> None:
    assert extended(cpython, tmp_path, 3) == ["it took too long"]


ENDLESS = "it has found more than the program's memory has room for"


def test_a_traverse_function_of_an_extension_that_visits_without_end(
    cpython: Interpreter, tmp_path: Path
) -> None:
    """The copy would take all memory that there is before its time is over."""
    assert extended(cpython, tmp_path, 4, 0) == [ENDLESS, ""]


LOOPS = """
import ctypes, gc, os, time, nthbyte
gc.disable()
class Broken: pass
kept = [Broken() for _ in range(100)]
traverse = ctypes.c_void_p.from_address(id(Broken) + 184)
own = traverse.value
traverse.value = ctypes.cast(ctypes.CDLL(None).pause, ctypes.c_void_p).value
assert nthbyte.snapshot(force=True) is None
traverse.value = own
nthbyte.stop()
children = [open(f"/proc/self/task/{task}/children").read() for task in os.listdir("/proc/self/task")]
print("".join(children).split())
"""


@pytest.mark.slow
def test_a_walk_that_does_not_end_is_ended(cpython: Interpreter, tmp_path: Path) -> None:
    done = cpython.nthbyte("run", "--no-holders", "-o", "a.nthb", "-c", LOOPS, folder=tmp_path).ok()
    assert done.out == "[]\n"
    assert [found.why for found in snapshots(tmp_path / "a.nthb")] == ["it took too long"]


# What a copy has for itself while it stands still: after it has looked at all that the collector knows.
COPIES = """
import ctypes, gc, os, signal, time, nthbyte
gc.disable()
class Broken: pass
kept = [[number] for number in range(400_000)]
broken = Broken()
traverse = ctypes.c_void_p.from_address(id(Broken) + 184)
own = traverse.value
traverse.value = ctypes.cast(ctypes.CDLL(None).pause, ctypes.c_void_p).value
assert nthbyte.snapshot(force=True) is None
traverse.value = own
(copy,) = [
    int(copy)
    for task in os.listdir("/proc/self/task")
    for copy in open(f"/proc/self/task/{task}/children").read().split()
]
while open(f"/proc/{copy}/stat").read().rpartition(") ")[2][0] != "S":
    time.sleep(0.01)
with open(f"/proc/{copy}/smaps_rollup") as lines:
    print(next(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty")))
os.kill(copy, signal.SIGKILL)
"""


def test_a_snapshot_copies_no_pages_of_the_objects_that_it_looks_at(
    cpython: Interpreter, tmp_path: Path
) -> None:
    """The lists and what is in them have 50 MB. A count of references to each would copy them."""
    options = ("run", "-q", "--no-holders", "-o", "a.nthb", "-c", COPIES)
    done = cpython.nthbyte(*options, folder=tmp_path).ok()
    assert int(done.out) < 40_000


# A copy stands still while the program forks; where its result would lie, the forked child has something else.
# Its recording begins anew with the first sample.
FORKS = """
import ctypes, gc, os, signal, time, nthbyte
gc.disable()
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
class Broken: pass
kept = [Broken() for _ in range(100)]
traverse = ctypes.c_void_p.from_address(id(Broken) + 184)
own = traverse.value

def shared():
    with open("/proc/self/maps") as lines:
        return {line.split(" ")[0] for line in lines if "/dev/zero" in line}

before = shared()
traverse.value = ctypes.cast(libc.pause, ctypes.c_void_p).value
assert nthbyte.snapshot(force=True) is None
traverse.value = own
(added,) = shared() - before
start, end = (int(word, 16) for word in added.split("-"))
# The writer thread takes it over meanwhile.
time.sleep(2)
child = os.fork()
if not child:
    size, fixed = ctypes.c_size_t(end - start), 0x32
    assert libc.mmap(ctypes.c_void_p(start), size, 3, fixed, -1, ctypes.c_long(0)) == start
    ctypes.memset(start, 50, end - start)
    texts = [str(number) for number in range(200_000)]
    os._exit(ctypes.c_ubyte.from_address(start).value)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
for task in os.listdir("/proc/self/task"):
    with open(f"/proc/self/task/{task}/children") as copies:
        for copy in copies.read().split():
            os.kill(int(copy), signal.SIGKILL)
"""


def test_a_fork_during_a_snapshot_leaves_the_memory_of_the_child_alone(
    cpython: Interpreter, tmp_path: Path
) -> None:
    options = ("run", "-q", "--no-holders", "--every", "1MiB", "-o", "a.nthb", "-c", FORKS)
    done = cpython.nthbyte(*options, folder=tmp_path).ok()
    assert done.out == "50\n"
    (found,) = snapshots(tmp_path / "a.nthb")
    assert found.why == "its process was killed: memory may be short"
    (profile,) = tmp_path.glob("a.*.nthb")
    assert summary(profile)["samples"] > 0


# The first write to a huge page that a copy has, too, splits it.
HUGE = """
import time, nthbyte

def huge():
    with open("/proc/self/smaps_rollup") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages"))

class Point:
    __slots__ = ("x", "y")
kept = []
for number in range(300_000):
    point = Point()
    point.x = [float(number)]
    kept.append(point)
first = split = huge()
while first and 2 * split > first:
    nthbyte.snapshot(force=True)
    for point in kept[::1000]:
        point.y = 1
    split = huge()
while first and huge() < 0.8 * first:
    time.sleep(0.05)
print(first)
"""


@pytest.mark.slow
def test_huge_pages_come_back_after_a_snapshot(cpython: Interpreter, tmp_path: Path) -> None:
    """The program ends when they are back."""
    options = ("run", "-q", "--no-holders", "-o", "a.nthb", "-c", HUGE)
    done = cpython.nthbyte(*options, folder=tmp_path, timeout=600).ok()
    if done.out == "0\n":
        pytest.skip("this system has no huge pages")


# What a handler of a signal leaves in the collector's counts, once a full collection has emptied the free lists.
COUNTED = """
import gc, os, signal, time
from nthbyte._agent import load
counted = load().snapshot_seconds

def left():
    gc.collect()
    before = gc.get_count()[0]
    os.kill(os.getpid(), signal.SIGUSR2)
    return gc.get_count()[0] - before

left()
while not counted():
    time.sleep(0.01)
ours = left()
signal.signal(signal.SIGUSR2, lambda number, frame: None)
plain = left()
print(ours - plain)
"""


def test_a_snapshot_at_a_signal_leaves_no_more_for_the_collector_than_a_handler_does(
    cpython: Interpreter, tmp_path: Path
) -> None:
    options = ("run", "-q", "--holders", "--snapshot", "USR2", "-o", "a.nthb", "-c", COUNTED)
    done = cpython.nthbyte(*options, folder=tmp_path).ok()
    # An object shows where the collector's lists are, and is freed.
    assert done.out == "0\n"


# How many elements the outermost loop of each function has taken, where that is known: what it is over has an end.
PASSES = """
import itertools, time, nthbyte
things = list(range(40))

def look(kept):
    kept.append(["%09d" % i * 50 for i in range(100)])
    if len(kept) == 7:
        while (why := nthbyte.snapshot(force=True)) == "the one before is not finished":
            time.sleep(0.01)
        assert why is None, why
    return len(kept) == 7

def over(name, iterable):
    source = f"def {name}(iterable):\\n kept = []\\n for _ in iterable:\\n  if look(kept): break\\n return len(kept)"
    exec(source, globals())
    return globals()[name](iterable)

def nested():
    kept = []
    for _ in things[:5]:
        for _ in things[:4]:
            if look(kept): return

def endless():
    kept = []
    while True:
        for _ in things[:4]:
            if look(kept): return

def called():
    kept = []
    for _ in itertools.count():
        for _ in things:
            if look(kept): return

over("a_list", things)
over("a_tuple", tuple(things))
over("keys", dict.fromkeys(things))
over("values", dict.fromkeys(things).values())
over("items", dict.fromkeys(things).items())
over("numbered", enumerate(things))
over("numbers", range(40))
over("generated", (one for one in things))
nested()
endless()
called()
"""
TAKEN = {
    "a_list": "7",
    "a_tuple": "7",
    "keys": "7",
    "values": "7",
    "items": "7",
    "numbered": "7",
    "numbers": "-",
    "generated": "-",
    "nested": "2",
    "endless": "3",
    "called": "-",
}


@pytest.mark.each
def test_how_far_a_call_is_in_a_pass_over_what_has_an_end(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "loops.py").write_text(PASSES)
    cpython.nthbyte("run", "-q", "--no-holders", "-o", "a.nthb", "loops.py", folder=tmp_path).ok()
    found = {}
    for one in snapshots(tmp_path / "a.nthb"):
        assert one.outcome == "complete" or one.why == "the one before is not finished"
        calls = {node[2].removeprefix("4 "): node[5] for node in one.nodes if node[2].startswith("4 ")}
        found.update({name: taken for name, taken in calls.items() if name in TAKEN})
    assert found == TAKEN


LABELLED = """
import nthbyte
sessions, reports = {}, []
with nthbyte.label(endpoint="/checkout"):
    for number in range(20_000):
        sessions[number] = "x" * (150 + number % 7)
    reports.extend("y" * (150 + number % 7) for number in range(5_000))
with nthbyte.label(endpoint="/report"):
    reports.extend("z" * (150 + number % 7) for number in range(10_000))
"""


@pytest.mark.parametrize("every", ["4KiB", "256"])
def test_what_was_allocated_under_a_label_has_its_holders(
    cpython: Interpreter, every: str, tmp_path: Path
) -> None:
    """With so many samples that the snapshot has a part of them, too."""
    options = ("run", "--every", every, "--no-native", "--holders", "-o", "a.nthb", "-c", LABELLED)
    cpython.nthbyte(*options, folder=tmp_path).ok()

    def amounts(rows: list[dict[str, Any]], name: str) -> dict[str, float]:
        return {row[name]: row["bytes"]["estimate"] for row in rows}

    def near(found: float, expected: float) -> bool:
        return 0.75 < found / expected < 1.3

    shown = json.loads(
        report("holders", "--json", "--by", "label:endpoint", "a.nthb", folder=tmp_path).ok().out
    )
    rows = {row["value"]: row for row in shown["by_label"]["rows"]}
    checkout = amounts(rows["/checkout"]["holders"], "holder")
    # Texts of 202 bytes; numbers and the table of the dictionary.
    assert near(checkout["sessions"], 20_000 * (202 + 32) + 590e3) and near(checkout["reports"], 5_000 * 202)
    of_report = 10_000 * 202 + 15_000 * 8
    assert near(amounts(rows["/report"]["holders"], "holder")["reports"], of_report)
    asked = ("--label", "endpoint=/report", "a.nthb")
    of_one = json.loads(report("holders", "--json", *asked, folder=tmp_path).ok().out)
    assert near(amounts(of_one["holders"], "holder")["reports"], of_report)
    assert near(of_one["alive"]["estimate"], of_report) and of_one["labels"] == ["endpoint=/report"]
    told = report("holders", "--by", "thread", "a.nthb", folder=tmp_path).ok().out
    assert "MainThread" in told and "held by sessions" in told
    wrong = report("holders", "--label", "endpoint=/none", "a.nthb", folder=tmp_path)
    assert wrong.status == 1 and "/checkout" in wrong.err
