"""What threads without the GIL do at once, where with it they take turns: labels, tasks, time samples, freed code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import SPEND, Interpreter, is_near, summary
from shares import check_share, together

from .test_agent import KNOWN, recorded, rows

LABELS = """
import nthbyte

def labelled(function):
    for turn in range(200):
        # All threads enter and leave the outer one at once: it is one object.
        with nthbyte.label(turn=turn % 5), nthbyte.label(of=function.__name__):
            TRUTH[function.__name__] += function(COUNTS[function.__name__] // 200, forget)

threads = [threading.Thread(target=labelled, args=(function,)) for function in FUNCTIONS]
start_and_join(threads)
tell(TRUTH)
"""


def test_labels_are_those_of_their_thread(threaded: Interpreter, tmp_path: Path) -> None:
    _, told = recorded(threaded, tmp_path, LABELS, "--every", "16K")
    for name, bytes_ in told["truth"].items():
        found = rows(tmp_path / "out.nthb", "--label", f"of={name}")
        assert is_near(found[name]["self_bytes"], bytes_), name
        assert not {row for row in found if row.startswith("some_")} - {name}
    by_turn = rows(tmp_path / "out.nthb", "--by", "label:turn")
    assert set("01234") < set(by_turn), by_turn


MANY_LABELS = """
import nthbyte

shared = [nthbyte.label(shared=number) for number in range(4)]
done = threading.Event()

def enter(seed):
    for turn in range(50_000):
        # New ones, known ones, and those of others, in each other.
        with nthbyte.label(number=(turn * seed) % 997), shared[turn % 4], nthbyte.label(seed=seed), shared[turn % 3]:
            with nthbyte.label(inner=turn % 50):
                bytes(700)
    # Left by a thread that has not entered it.
    shared[0].__exit__(None, None, None)

def collect():
    while not done.wait(0.01):
        gc.collect()

others = [threading.Thread(target=enter, args=(seed,)) for seed in (1, 3, 7, 11)]
collector = threading.Thread(target=collect)
for other in others + [collector]:
    other.start()
statuses = []
for _ in range(12):
    child = os.fork()
    if not child:
        with nthbyte.label(of="child"), shared[1]:
            bytes(700)
        os._exit(7)
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
done.set()
for other in others + [collector]:
    other.join()
assert set(statuses) == {7}, statuses
tell({})
"""


def test_labels_that_many_threads_share_stay_whole(threaded: Interpreter, tmp_path: Path) -> None:
    environment = {"PYTHONWARNINGS": "ignore"}
    recorded(threaded, tmp_path, MANY_LABELS, "--every", "4K", "--no-children", environment=environment)
    found = summary(tmp_path / "out.nthb", "--by", "label:seed")
    by_seed = {row["name"]: row for row in found["rows"]}
    for seed in ("1", "3", "7", "11"):
        made = summary(tmp_path / "out.nthb", "--label", f"seed={seed}", "--by", "type")["rows"]
        [of_bytes] = [row for row in made if row["name"] == "bytes"]
        assert is_near(of_bytes["self_bytes"], 50_000 * (700 + 49)), (seed, by_seed[seed])


TASKS = """
import asyncio

async def work_of(function):
    for _ in range(50):
        TRUTH[function.__name__] += function(COUNTS[function.__name__] // 50, forget)
        await asyncio.sleep(0)

async def main(function):
    await asyncio.gather(*(asyncio.create_task(asyncio.sleep(0)) for _ in range(20)))
    await asyncio.create_task(work_of(function), name=function.__name__ + "'s")

def loop(function):
    # Loops come and go: the dictionary that has them changes, and is made anew.
    for _ in range(20):
        asyncio.run(asyncio.sleep(0))
    asyncio.run(main(function))

threads = [threading.Thread(target=loop, args=(function,)) for function in FUNCTIONS]
start_and_join(threads)
tell(TRUTH)
"""


def test_tasks_of_loops_in_threads_have_their_names(threaded: Interpreter, tmp_path: Path) -> None:
    _, told = recorded(threaded, tmp_path, TASKS, "--every", "16K")
    for name, bytes_ in told["truth"].items():
        found = rows(tmp_path / "out.nthb", "--label", f"task={name}'s")
        assert is_near(found[name]["self_bytes"], bytes_), name
        assert not {row for row in found if row.startswith("some_")} - {name}


TIME = (
    SPEND
    + """
def first():
    spend(0.3)

def second():
    spend(0.6)

def third():
    spend(0.9)

threads = [threading.Thread(target=work, name=work.__name__) for work in (first, second, third)]
start_and_join(threads)
tell({})
"""
)


def test_each_thread_has_its_time(threaded: Interpreter, tmp_path: Path) -> None:
    recorded(threaded, tmp_path, TIME, "--cpu")
    found = summary(tmp_path / "out.nthb")["time"]
    samples = {row["name"]: row["total_samples"] for row in found["rows"]}
    all_of_them = sum(samples[name] for name in ("first", "second", "third"))
    assert "gil_held" not in found
    for name, share in {"first": 1 / 6, "second": 2 / 6, "third": 3 / 6}.items():
        check_share(
            samples[name], share, all_of_them, together=together(tmp_path / "out.nthb"), lost=found["lost"]
        )


# Each thread runs and frees code of its own, others' too, and collects it.
FREED_CODE = (
    SPEND
    + """
shared = collections.deque(maxlen=50)

def make(number):
    names = {}
    exec(f"def made_{number}(n):\\n    return sum(i * i for i in range(n))", names)
    return names[f"made_{number}"]

def work():
    end = time.thread_time() + 0.6
    number = 0
    while time.thread_time() < end:
        number += 1
        made = make(number % 7)
        made(200)
        # Freed by any thread, in any order.
        shared.append(made)
        try:
            shared[number % len(shared)](50)
        except IndexError:
            pass
        if number % 200 == 0:
            gc.collect()

threads = [threading.Thread(target=work) for _ in range(4)]
start_and_join(threads)
tell({})
"""
)
MADE = {"<module>", "make", "work", *(f"made_{number}" for number in range(7))}
MADE |= {f"{name}.<locals>.<genexpr>" for name in MADE if name.startswith("made_")}


@pytest.mark.parametrize("options", [("--cpu",), ("--cpu", "5000", "--every", "4K")], ids=str)
def test_code_that_other_threads_free_has_its_names(
    options: tuple[str, ...], threaded: Interpreter, tmp_path: Path
) -> None:
    recorded(threaded, tmp_path, FREED_CODE, *options)
    found = summary(tmp_path / "out.nthb", "--top", "10000")
    in_app = {row["name"] for row in found["time"]["rows"] if row["file"].endswith("app.py")}
    in_made = {row["name"] for row in found["time"]["rows"] if row["file"] == "<string>"}
    assert in_app <= {"<module>", "make", "work", "start_and_join"} and in_made <= MADE, (in_app, in_made)
    assert len(in_made) > 7
    assert found["time"]["samples"] > 300
    assert found["time"]["lost"] < found["time"]["samples"] / 4, found["time"]


LABELLED_TIME = (
    SPEND
    + """
import nthbyte

def first():
    spend(0.4)

def second():
    spend(0.4)

def labelled(function):
    with nthbyte.label(of=function.__name__):
        function()

threads = [threading.Thread(target=labelled, args=(function,)) for function in (first, second)]
start_and_join(threads)
tell({})
"""
)


def test_time_samples_have_the_labels_of_their_thread(threaded: Interpreter, tmp_path: Path) -> None:
    recorded(threaded, tmp_path, LABELLED_TIME, "--cpu")
    for name in ("first", "second"):
        found = summary(tmp_path / "out.nthb", "--label", f"of={name}")["time"]
        functions = {row["name"] for row in found["rows"]} & {"first", "second"}
        assert functions == {name} and found["samples"] > 10, found


@pytest.mark.parametrize("how", ["option", "variable"])
def test_the_gil_may_be_on(how: str, threaded: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(KNOWN + LABELS)
    flags, environment = ((), {"PYTHON_GIL": "1"}) if how == "variable" else (("-X", "gil=1"), {})
    words = ("run", "-q", "--cpu", "--every", "16K", "-o", "out.nthb", "app.py")
    done = threaded.nthbyte(*words, folder=tmp_path, flags=flags, environment=environment).ok()
    told = json.loads(done.out)
    assert told["gil"]
    for name, bytes_ in told["truth"].items():
        found = rows(tmp_path / "out.nthb", "--label", f"of={name}")
        assert is_near(found[name]["self_bytes"], bytes_), name
