"""Profiles of PyPy programs: stacks, types, classes, fates, collections, time; and refusals."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import harness
from harness import Interpreter

PROGRAM = """
import sys
class Outer:
    class Kept:
        def __init__(self, value):
            self.value = value
class Dropped:
    def __init__(self, value):
        self.value = value
class Numbers(list):
    pass
kept = []
def keep(count):
    for number in range(count):
        kept.append(Outer.Kept(number))
def drop(count):
    last = None
    for number in range(count):
        last = Dropped(number)
    return last
def extend(count):
    for number in range(count):
        kept.append(Numbers())
keep(200_000)
extend(100_000)
# This is last, so that no sweep happens meanwhile: PyPy counts the heap again during a sweep.
drop(3_000_000)
"""


@pytest.fixture(scope="session")
def profiled(pypy: Interpreter, tmp_path_factory: Any) -> Path:
    folder = tmp_path_factory.mktemp("profiled")
    (folder / "program.py").write_text(PROGRAM)
    words = ["--jit", "off", "-m", "nthbyte", "run", "-q", "--every", "16KiB", "--cpu", "500"]
    words += ["-o", "out.nthb", "program.py"]
    pypy.python(*words, folder=folder, environment={"PYPY_GC_NURSERY": "1M"}).ok()
    profile: Path = folder / "out.nthb"
    return profile


def _rows(profile: Path, by: str) -> dict[str, Any]:
    return {row["name"]: row for row in harness.summary(profile, "--by", by)["rows"]}


def test_functions_and_their_callers(profiled: Path) -> None:
    rows = harness.summary(profiled, "--by", "function")["rows"]
    # Other imported modules also have a function with this name.
    own = {row["name"]: row for row in rows if row["file"].endswith("program.py")}
    for name in ("keep", "drop", "extend"):
        assert own[name]["samples"] > 10
    everything = sum(row["self_bytes"]["estimate"] for row in rows)
    assert own["<module>"]["total_bytes"]["estimate"] > 0.9 * everything
    assert not any("/nthbyte/_run.py" in row["file"] for row in rows)


def test_python_code_of_the_agent_is_not_in_the_profile(pypy: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("[[] for _ in range(1000)]\n")
    pypy.nthbyte("run", "-q", "--every", "64", "-o", "out.nthb", "program.py", folder=tmp_path).ok()
    rows = harness.summary(tmp_path / "out.nthb", "--by", "function")["rows"]
    assert any(row["file"].endswith("program.py") for row in rows)
    # The name that pypy_execute_source gives to what it executes.
    assert not any(row["file"] == "c callback" for row in rows)


def test_the_machinery_of_imports_is_no_code_of_the_program(pypy: Interpreter, tmp_path: Path) -> None:
    profile = tmp_path / "out.nthb"
    program = "import decimal, email.message, http.client, json, xml.dom.minidom"
    pypy.nthbyte("run", "-q", "--every", "4K", "-o", profile, "-c", program, folder=tmp_path).ok()
    files = {row["file"] for row in harness.summary(profile)["rows"]}
    assert "<frozen importlib._bootstrap_external>" in files
    assert not [file for file in files if file.startswith("<builtin>/frozen")]
    text = harness.report("summary", profile, "--top", "0", folder=tmp_path).ok().out
    assert "[import]" in text and "_compile_bytecode" not in text
    explained = harness.report("explain", profile, folder=tmp_path).ok().out
    # It is not known which line ran.
    assert "importlib" not in explained and "other line" not in explained


HANDLER = """
import ctypes, signal
import nthbyte
def buffers(count):
    for _ in range(count):
        ctypes.create_string_buffer(300_000)
def handler(*_):
    buffers(1)
    signal.setitimer(signal.ITIMER_REAL, 0.001 if wanted else 0)
wanted = True
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.001)
nthbyte.start("out.nthb", every="64KiB", fixed=True, native=False)
wanted = False
signal.setitimer(signal.ITIMER_REAL, 0)
buffers(200)
print(nthbyte.stop().samples)
"""


def test_buffers_of_a_signal_handler_do_not_count_as_objects(pypy: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(HANDLER)
    # The buffers are not objects. If they counted, there would be 200 samples.
    assert int(pypy.python("program.py", folder=tmp_path).ok().out) < 50


DEEP = """
import sys
sys.setrecursionlimit(5000)
def down(depth):
    return down(depth - 1) if depth else [bytearray(50) for _ in range(300)]
for number in range(400):
    down(number * 37 % 800)
"""


@pytest.mark.parametrize("jit", [True, False])
def test_deep_stacks_are_complete(pypy: Interpreter, tmp_path: Path, jit: bool) -> None:
    (tmp_path / "program.py").write_text(DEEP)
    flags = [] if jit else ["--jit", "off"]
    words = ["-m", "nthbyte", "run", "--every", "4KiB", "-o", "out.nthb", "program.py"]
    run = pypy.python(*flags, *words, folder=tmp_path).ok()
    # The frame list was compared with _vmprof's records, and they were equal.
    assert "list of frames" not in run.err
    profile = tmp_path / "out.nthb"
    collapsed = tmp_path / "out.txt"
    harness.report("export", "--to", "collapsed", "-o", collapsed, profile, folder=tmp_path).ok()
    stacks = [line.split(";") for line in collapsed.read_text().splitlines()]
    depths = [sum(frame.startswith("down ") for frame in stack) for stack in stacks]
    assert max(depths) > 780
    # The stacks of native memory have the innermost frames, and say so.
    outermost = ("<module> ", "(outer frames not recorded)")
    assert all(stack[0].startswith(outermost) for stack, depth in zip(stacks, depths) if depth)


def test_the_class_of_an_instance(profiled: Path) -> None:
    rows = _rows(profiled, "type")
    assert {"Outer.Kept", "Dropped", "Numbers", "int"} <= rows.keys()
    # Seven words: the header, the type, space for at most five attributes, and the map.
    each = rows["Dropped"]["self_bytes"]["estimate"] / 3_000_000
    assert 40 < each < 80


def test_fates(profiled: Path) -> None:
    rows = _rows(profiled, "type")
    young = {
        name: row["died_young"]["estimate"] / row["self_bytes"]["estimate"] for name, row in rows.items()
    }
    assert young["Dropped"] > 0.99
    assert young["Outer.Kept"] < 0.01


SLOW = """
import gc, os, select, signal, sys, time
class Kept: pass
class Dropped: pass
class Other: pass
def fill():
    kept = [Kept() for _ in range(5000)]
    [Dropped() for _ in range(5000)]
    return kept
kept = fill()
time.sleep(1.5)
fill()
if sys.argv[1:] == ["killed"]:
    # The next samples write the data for which there was no room before.
    while not select.select([0], [], [], 0.05)[0]:
        [Other() for _ in range(20)]
    os.kill(os.getpid(), signal.SIGKILL)
gc.collect()
"""


def test_types_and_fates_of_samples_that_are_pending_for_long(pypy: Interpreter, tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text(SLOW)
    # So large that there is no collection before the end.
    environment = {"PYPY_GC_NURSERY": "64M"}
    words = ["run", "-q", "--every", "64", "-o"]
    collected, killed = tmp_path / "collected.nthb", tmp_path / "killed.nthb"
    pypy.nthbyte(*words, collected, script, folder=tmp_path, environment=environment).ok()
    rows = _rows(collected, "type")
    for name, young in (("Kept", 0.5), ("Dropped", 1)):
        row = rows[name]
        assert row["died_young"]["estimate"] == pytest.approx(young * row["self_bytes"]["estimate"], rel=0.05)

    def known(name: str) -> float:
        """Returns how much of a type is in the killed program's profile by its name: 1 is the first half."""
        row = harness.rows_so_far(killed, "--by", "type").get(name)
        return float(row["self_bytes"]["estimate"] / rows[name]["self_bytes"]["estimate"] * 2) if row else 0

    def is_enough() -> bool:
        return known("Kept") > 0.9 and known("Dropped") > 0.9

    words += [killed, script, "killed"]
    done = pypy.nthbyte(*words, folder=tmp_path, environment=environment, until=is_enough)
    assert done.status < 0
    # The types of the second half are known even if it was pending for long. The standard deviation is 0.024.
    assert all(0.9 < known(name) < 2.2 for name in ("Kept", "Dropped"))


def test_collections_memory_and_time_samples(profiled: Path) -> None:
    summary = harness.summary(profiled)
    assert summary["method"] == "nursery-limit"
    assert summary["collections"]["count"] > 100
    assert summary["complete"]
    assert summary["lost"] == 0
    counters = harness.firefox(profiled)["counters"]
    totals = {counter["name"]: sum(counter["samples"]["count"]) for counter in counters}
    # 200,000 instances of at least seven words are alive, and 100,000 of another class.
    assert 15e6 < totals["Heap used"] < totals["Heap reserved"] < totals["RSS"]


def test_bytes_a_sample(profiled: Path) -> None:
    found = harness.summary(profiled)
    # A slower machine gives more time samples, and more blocks.
    events = found["samples"] + found["time"]["samples"] + found["collections"]["count"]
    blocks = profiled.read_bytes().count(harness.BLOCK)
    assert profiled.stat().st_size < 20 * events + 2048 * blocks


FORKS = """
import os, threading
def parent():
    return [[] for _ in range(200_000)]
def child():
    source = "def fresh():\\n    return [[] for _ in range(200_000)]\\nfresh()"
    exec(compile(source, "fresh.py", "exec"))
parent()
thread = threading.Thread(target=parent, name="worker")
thread.start(); thread.join()
pid = os.fork()
if pid == 0:
    child()
    os._exit(7)
assert os.waitpid(pid, 0)[1] == 7 << 8
parent()
"""


def test_a_fork_has_a_profile_of_its_own(pypy: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(FORKS)
    words = ["run", "-q", "--every", "32KiB", "-o", "out.nthb", "program.py"]
    pypy.nthbyte(*words, folder=tmp_path, environment={"PYPY_GC_NURSERY": "1M"}).ok()
    (other,) = [path for path in tmp_path.glob("out.*.nthb")]
    names = {name for path in (tmp_path / "out.nthb", other) for name in _rows(path, "function")}
    assert any(row["file"] == "fresh.py" for row in _rows(other, "function").values())
    assert not any(row["file"] == "fresh.py" for row in _rows(tmp_path / "out.nthb", "function").values())
    assert names
    # The child's clock starts again from zero, and so do its memory totals.
    assert {"Heap used", "RSS"} <= {counter["name"] for counter in harness.firefox(other)["counters"]}


REFUSED = """
import sys, nthbyte
{before}
try:
    nthbyte.start("out.nthb"{options})
except (nthbyte.Error, ValueError) as error:
    print(error)
    sys.exit(0)
sys.exit("it was not refused")
"""


@pytest.mark.parametrize(
    ("before", "options", "says"),
    [
        ("import signal; signal.signal(signal.SIGPROF, lambda *_: None)", "", "SIGPROF"),
        ("import sys; sys.modules['_vmprof'] = None", "", "without _vmprof"),
        (
            "import _vmprof; file = open('v', 'wb'); _vmprof.enable(file.fileno(), 0.5, 0, 0, 0, 0)",
            "",
            "vmprof is profiling this program already",
        ),
        ("", ", huge_pages='off'", "huge_pages"),
    ],
)
def test_wrong_usage_gives_one_line(
    pypy: Interpreter, before: str, options: str, says: str, tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    script.write_text(REFUSED.format(before=before, options=options))
    done = pypy.python(script, folder=tmp_path).ok()
    assert says in done.out
    assert done.out.count("\n") == 1


TAKEN = """
import os, sys, _vmprof, nthbyte
def before(): return [[] for _ in range(100_000)]
def after(): return [[] for _ in range(100_000)]
nthbyte.start("out.nthb", every="4KiB"{cpu})
before()
{taken}
size = os.fstat(own.fileno()).st_size if own else 0
after()
if hasattr(os, "fork"):
    pid = os.fork()
    if pid == 0:
        after()
        os._exit(7)
    assert os.waitpid(pid, 0)[1] == 7 << 8
print(*nthbyte.stop().notes)
if own:
    assert _vmprof.is_enabled()
    assert os.fstat(own.fileno()).st_size < size + 10_000
    _vmprof.disable()
assert not _vmprof.is_enabled()
nthbyte.start("again.nthb", every="4KiB")
after()
nthbyte.stop()
"""


@pytest.mark.parametrize("cpu", ["", ", cpu=1000"], ids=["", "cpu"])
@pytest.mark.parametrize(
    "taken",
    [
        "own = None; _vmprof.disable()",
        # With a plain _vmprof this is harmless too, since its handler is not called any more.
        "own = None; _vmprof.stop_sampling(); _vmprof.disable(); _vmprof.start_sampling()",
        "own = open('own', 'wb'); _vmprof.disable(); _vmprof.enable(own.fileno(), 0.99, 0, 0, 0, 0)",
    ],
    ids=["off", "off-between", "on-again"],
)
def test_the_program_may_use_vmprof_after_switching_it_off(
    pypy: Interpreter, taken: str, cpu: str, tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    script.write_text(TAKEN.format(taken=taken, cpu=cpu))
    done = pypy.python(script, folder=tmp_path).ok()
    assert "switched _vmprof off" in done.out
    assert done.out.count("\n") == 1
    rows = _rows(tmp_path / "out.nthb", "function")
    assert rows["before"]["total_bytes"]["estimate"] > 0
    assert "after" not in rows
    summary = harness.summary(tmp_path / "out.nthb")
    assert summary["complete"]
    assert summary["lost"] == 0
    assert "after" in _rows(tmp_path / "again.nthb", "function")


STOLEN = """
import os, nthbyte
def fill():
    return [[] for _ in range(100_000)]
def name(number):
    exec(compile(f"def late_{number}(): return [[] for _ in range(1000)]\\nlate_{number}()", "late.py", "exec"))
nthbyte.start("out.nthb", every="4KiB", cpu=1000)
fill()
theirs = os.open("theirs", os.O_RDWR | os.O_CREAT)
for number in range(3, 1000):
    if number != theirs:
        os.dup2(theirs, number)
for number in range(300):
    name(number)
fill()
nthbyte.stop()
assert os.fstat(theirs).st_size == 0
assert all(os.fstat(number).st_ino == os.fstat(theirs).st_ino for number in range(3, 1000))
"""


def test_descriptors_that_the_program_reuses_are_not_written_to(pypy: Interpreter, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(STOLEN)
    pypy.python(script, folder=tmp_path).ok()
    rows = harness.summary(tmp_path / "out.nthb", "--by", "function", "--top", "1000")["rows"]
    assert any(row["name"] == "fill" for row in rows)
    # Names that are written later are found.
    late = [row for row in rows if row["name"].startswith("late_") and row["file"] == "late.py"]
    assert len(late) > 200


def test_tune_prints_the_line_to_copy(pypy: Interpreter, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("for _ in range(30): [[] for _ in range(10_000)]\n")
    words = ["tune", "--runs", "1", "--sizes", "512K,4M", "program.py"]
    done = pypy.nthbyte(*words, folder=tmp_path).ok()
    assert "PyPy's choice" in done.out
    assert re.search(r"PYPY_GC_NURSERY=\d+|as fast as any", done.out)


@pytest.mark.parametrize(
    "program", [["-c", "pass"], ["-m", "this"], ["-mthis"], ["--", "-c", "pass"]], ids=str
)
def test_tune_runs_modules_and_code(program: list[str], pypy: Interpreter, tmp_path: Path) -> None:
    done = pypy.nthbyte("tune", "--runs", "1", "--sizes=4M", *program, folder=tmp_path).ok()
    assert "PyPy's choice" in done.out


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--sizes", "0", "-c", "pass"], 2, "at least 1 byte"),
        (["--sizes", "much", "-c", "pass"], 2, "'much' is not a size"),
        (["--runs", "1"], 2, "nothing to run"),
        (["-c", "import sys; sys.exit(3)"], 1, "ended with status 3;"),
        (
            ["-c", "import os; 'PYPY_GC_NURSERY' in os.environ and os.abort()"],
            1,
            "by signal 6 with a nursery of 256.0",
        ),
        # Ctrl-C reaches both processes.
        (["-c", "import os; os.kill(os.getppid(), 2)"], 130, "interrupted"),
    ],
    ids=str,
)
def test_tune_says_in_one_line_what_is_wrong(
    words: list[str], status: int, said: str, pypy: Interpreter, tmp_path: Path
) -> None:
    done = pypy.nthbyte("tune", *words, folder=tmp_path)
    assert said in done.err.splitlines()[-1]
    assert "Traceback" not in done.err
    assert (done.status, done.out) == (status, "")
