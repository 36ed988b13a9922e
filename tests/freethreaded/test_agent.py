"""``nthbyte run`` on a CPython without the GIL: are its profiles true, and do programs behave as without it?

Each program prints the truth about itself: what its functions have allocated, by the sizes that Python says.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from harness import Done, Interpreter, is_near, report, summary

# Functions with known amounts, each of objects of its own type and size, and what they print.
KNOWN = """
import collections, concurrent.futures, gc, itertools, json, os, signal, sys, threading, time

TRUTH = collections.Counter()

class Slots:
    __slots__ = "a", "b", "c"

class Node:
    __slots__ = ("value", "__dict__")

def start_and_join(threads):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

def size(made):
    return sys.getsizeof(made)

# No numbers are made on the way: these would be objects, too.
def times(count):
    return itertools.repeat(None, count)

def some_bytes(count, keep):
    for _ in times(count):
        keep(bytes(900))
    return (count + 1) * size(bytes(900))

def some_slots(count, keep):
    for _ in times(count):
        keep(Slots())
    return (count + 1) * size(Slots())

def some_nodes(count, keep):
    for _ in times(count):
        keep(Node())
    return (count + 1) * size(Node())

def some_large(count, keep):
    for _ in times(count):
        keep(bytearray(200_000))
    return (count + 1) * size(bytearray(200_000))

def some_text(count, keep, letter="x", length=400):
    for _ in times(count):
        keep(letter * length)
    return (count + 1) * size(letter * length)

FUNCTIONS = [some_bytes, some_slots, some_nodes, some_large, some_text]
COUNTS = dict(some_bytes=20_000, some_slots=150_000, some_nodes=150_000, some_large=100, some_text=40_000)

def forget(made):
    pass

def work(keep=forget, turns=1):
    truth = {}
    for function in FUNCTIONS:
        truth[function.__name__] = function(turns * COUNTS[function.__name__], keep)
    return truth

def tell(truth):
    print(json.dumps({"truth": truth, "gil": sys._is_gil_enabled()}), flush=True)
"""


def recorded(
    threaded: Interpreter, folder: Path, program: str, *options: str, status: int = 0, **more: Any
) -> tuple[Done, Any]:
    """Runs a program after the known functions, and returns what it printed last."""
    (folder / "app.py").write_text(KNOWN + program)
    done = threaded.nthbyte(
        "run", "-q", *options, "-o", "out.nthb", "app.py", folder=folder, flags=("-X", "faulthandler"), **more
    )
    assert done.status == status, (done.status, done.out[-2000:], done.err[-4000:])
    told = json.loads(done.out.splitlines()[-1]) if done.out else None
    assert told is None or told.get("gil") is False, "the import has switched the GIL on"
    return done, told


def rows(profile: Path, *options: str) -> dict[str, Any]:
    found = summary(profile, *options)
    assert (found["complete"], found["damage"]) == (True, []), found["damage"]
    return {row["name"]: row for row in found["rows"]}


def all_are_near(found: dict[str, Any], truth: dict[str, float]) -> None:
    for name, bytes_ in truth.items():
        assert is_near(found[name]["self_bytes"], bytes_), (name, bytes_, found[name]["self_bytes"])


@pytest.mark.parametrize("period", [("--every", "1K"), ("--every", "64K"), ()], ids=str)
def test_functions_have_what_they_allocated(
    period: tuple[str, ...], threaded: Interpreter, tmp_path: Path
) -> None:
    _, told = recorded(threaded, tmp_path, "tell(work())", *period)
    all_are_near(rows(tmp_path / "out.nthb"), told["truth"])
    found = summary(tmp_path / "out.nthb")
    assert is_near(found["all"]["bytes"], found["bytes_allocated"])
    assert found["lost"] <= found["samples"] / 1000 + 1


def test_each_allocation_can_be_recorded(threaded: Interpreter, tmp_path: Path) -> None:
    counts = "COUNTS = {name: count // 100 for name, count in COUNTS.items()}\n"
    _, told = recorded(threaded, tmp_path, counts + "tell(work())", "--every", "1")
    found = rows(tmp_path / "out.nthb")
    for name, bytes_ in told["truth"].items():
        # Besides: numbers, iterators, what the lists of a bytearray need.
        assert bytes_ <= found[name]["self_bytes"]["estimate"] <= 1.2 * bytes_ + 20_000, (name, found[name])


def test_objects_have_their_types(threaded: Interpreter, tmp_path: Path) -> None:
    _, told = recorded(threaded, tmp_path, "tell(work())", "--every", "16K")
    found = rows(tmp_path / "out.nthb", "--by", "type")
    types = {"bytes": "some_bytes", "Slots": "some_slots", "Node": "some_nodes", "str": "some_text"}
    all_are_near(found, {kind: told["truth"][function] for kind, function in types.items()})


ALIVE = """
kept = []
tell({"some_bytes": some_bytes(20_000, kept.append), "some_text": some_text(40_000, forget) * 0})
"""


def test_what_is_kept_is_alive_and_the_rest_has_died(threaded: Interpreter, tmp_path: Path) -> None:
    _, told = recorded(threaded, tmp_path, ALIVE, "--every", "16K")
    found = rows(tmp_path / "out.nthb")
    for name, alive in told["truth"].items():
        assert is_near(found[name]["still_live"], alive) or alive == 0, (name, found[name]["still_live"])
    assert found["some_text"]["still_live"]["estimate"] < found["some_text"]["self_bytes"]["estimate"] / 100


THREADS = """
def one_of(function, times):
    for _ in range(times):
        TRUTHS[threading.current_thread().name] += function(COUNTS[function.__name__] // 5, KEEP)

TRUTHS, kept = collections.Counter(), collections.deque(maxlen=1000)
# A deque that all share: objects are freed by other threads than made them.
KEEP = kept.append
done = threading.Event()

def collect():
    while not done.is_set():
        gc.collect()
        time.sleep(0.01)

collector = threading.Thread(target=collect)
collector.start()
for turn in range(3):
    # Threads end, and new ones begin.
    threads = [threading.Thread(target=one_of, args=(function, 2), name=function.__name__) for function in FUNCTIONS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
done.set()
collector.join()
tell(TRUTHS)
"""


@pytest.mark.parametrize("period", [("--every", "8K"), ()], ids=str)
def test_threads_at_once_have_their_own_stacks_and_types(
    period: tuple[str, ...], threaded: Interpreter, tmp_path: Path
) -> None:
    _, told = recorded(threaded, tmp_path, THREADS, *period)
    all_are_near(rows(tmp_path / "out.nthb"), told["truth"])
    types = {"bytes": "some_bytes", "Slots": "some_slots", "Node": "some_nodes", "str": "some_text"}
    for function in types.values():
        of_thread = rows(tmp_path / "out.nthb", "--thread", function)
        others = {name for name in of_thread if name.startswith("some_")} - {function}
        assert not others, f"{others} in the thread of {function}"
        of_types = rows(tmp_path / "out.nthb", "--thread", function, "--by", "type")
        wrong = {kind for kind, other in types.items() if kind in of_types and other != function} - {"str"}
        assert not wrong, f"{wrong} in the thread of {function}"


POOL = """
def request(number):
    function = FUNCTIONS[number % 5]
    return function.__name__, function(COUNTS[function.__name__] // 20, forget)

truth = collections.Counter()
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    for name, bytes_ in pool.map(request, range(200)):
        truth[name] += bytes_
tell(truth)
"""


def test_a_pool_of_threads(threaded: Interpreter, tmp_path: Path) -> None:
    _, told = recorded(threaded, tmp_path, POOL, "--every", "32K")
    all_are_near(rows(tmp_path / "out.nthb"), told["truth"])


FORK = """
def in_child():
    os.write(1, b"")
    truth = some_slots(COUNTS["some_slots"], forget)
    with open("child.json", "w") as file:
        json.dump({"some_slots": truth}, file)

done = threading.Event()

def busy():
    while not done.is_set():
        some_text(1000, forget)

others = [threading.Thread(target=busy) for _ in range(2)]
for other in others:
    other.start()
for _ in range(5):
    child = os.fork()
    if not child:
        in_child()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
done.set()
for other in others:
    other.join()
tell({"some_bytes": some_bytes(COUNTS["some_bytes"], forget)})
"""


def test_children_of_forks_have_profiles_of_their_own(threaded: Interpreter, tmp_path: Path) -> None:
    environment = {"PYTHONWARNINGS": "ignore"}
    _, told = recorded(threaded, tmp_path, FORK, "--every", "16K", environment=environment)
    found = rows(tmp_path / "out.nthb")
    all_are_near(found, told["truth"])
    assert "in_child" not in found and "some_slots" not in found
    children = sorted(tmp_path.glob("out.*.nthb"))
    assert len(children) == 5
    truth = json.loads((tmp_path / "child.json").read_text())
    for child in children:
        of_child = rows(child)
        all_are_near(of_child, truth)
        assert "some_text" not in of_child, "of a thread that the child does not have"


# Waits until what was recorded is in the file.
WRITTEN = "from nthbyte._agent import load; assert load().flush(); "

ENDS = {
    "end": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "exception": ("raise ValueError", 1),
    "os._exit": ("os._exit(4)", 4),
    "daemon thread": (
        "threading.Thread(target=work, args=(forget, 1000), daemon=True).start(); time.sleep(0.3)",
        0,
    ),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    "SIGKILL": (WRITTEN + "os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
}


@pytest.mark.parametrize("end", ENDS)
def test_each_end_leaves_a_profile(end: str, threaded: Interpreter, tmp_path: Path) -> None:
    code, status = ENDS[end]
    _, told = recorded(threaded, tmp_path, f"tell(work())\n{code}\n", "--every", "16K", status=status)
    found = summary(tmp_path / "out.nthb")
    assert found["complete"] == (end != "SIGKILL") and not found["damage"]
    by_name = {row["name"]: row for row in found["rows"]}
    if end != "daemon thread":
        all_are_near(by_name, told["truth"])


AGAIN = """
import nthbyte

def part(name, period):
    nthbyte.start(name, every=period, force=True)
    truth = {"some_bytes": some_bytes(COUNTS["some_bytes"], forget)}
    result = nthbyte.stop()
    assert result.samples > 50, result
    return truth

done = threading.Event()

def busy():
    while not done.is_set():
        some_text(1000, forget)

other = threading.Thread(target=busy)
other.start()
for number in range(6):
    truth = part(f"part{number}.nthb", "16K" if number % 2 else "64K")
done.set()
other.join()
print(json.dumps(truth))
"""


def test_sessions_of_a_program_follow_each_other(threaded: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(KNOWN + AGAIN)
    done = threaded.python("-X", "faulthandler", "app.py", folder=tmp_path).ok()
    truth = json.loads(done.out)
    for number in range(6):
        all_are_near(rows(tmp_path / f"part{number}.nthb"), truth)


def test_each_report_reads_it(threaded: Interpreter, tmp_path: Path) -> None:
    recorded(threaded, tmp_path, "kept = []; tell(work(kept.append))", "--every", "64K")
    for words in (["explain"], ["leaks"], ["tree"], ["memory"], ["flamegraph", "-o", "out.html"]):
        done = report(*words, "out.nthb", folder=tmp_path)
        assert done.status == 0 and "panicked" not in done.err, (words, done.err)
    assert "some_nodes" in report("leaks", "out.nthb", folder=tmp_path).out


@pytest.mark.parametrize("option", [("--holders",), ("--snapshot", "60s")], ids=str)
def test_what_does_not_work_is_refused_in_one_line(
    option: tuple[str, ...], threaded: Interpreter, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text("print('not reached')")
    done = threaded.nthbyte("run", *option, "-o", "out.nthb", "app.py", folder=tmp_path)
    assert (done.status, done.out) == (1, "")
    assert "without the GIL" in done.err and len(done.err.splitlines()) == 1, done.err


def test_debug_hooks_are_refused_in_one_line(threaded: Interpreter, tmp_path: Path) -> None:
    done = threaded.nthbyte("run", "-c", "print('not reached')", folder=tmp_path, flags=("-X", "dev"))
    assert (done.status, done.out) == (1, "")
    assert "debug hooks" in done.err and len(done.err.splitlines()) == 1, done.err


def test_check_says_what_works(threaded: Interpreter, tmp_path: Path) -> None:
    done = threaded.nthbyte("check", "--json", folder=tmp_path).ok()
    found = {row["what"]: row for row in json.loads(done.out)["rows"]}
    works = {what: found[what]["state"] for what in ("interpreter", "heap", "native memory", "time samples")}
    assert works == dict.fromkeys(works, "yes"), found
    assert "CPython's own allocator" in found["heap"]["text"]
    assert found["holders"]["state"] == "no"
