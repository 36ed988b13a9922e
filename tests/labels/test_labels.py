"""Labels: who pays for allocations, in programs that know it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from harness import Interpreter, is_near, report, summary

# Of each kind of work, a program allocates so many objects of this size that it tells the test the number of.
SIZE = 200_000
# A size and a period with which each object is sampled without exception, and all else of a function is less than one.
# If all that frameworks allocate was recorded, a slow machine would lose some of it.
LARGE = (10 * SIZE, "64KiB")
PROGRAM = """
import asyncio, atexit, collections, contextvars, json, threading
from concurrent.futures import ThreadPoolExecutor
import nthbyte

truth, last, lock = collections.Counter(), [None], threading.Lock()
def make(work, count=1):
    with lock:
        truth[work] += count
    for _ in range(count):
        # Kept, or else PyPy's compiler leaves it out.
        last[0] = [None] * (SIZE // 8)
atexit.register(lambda: json.dump(truth, open("truth.json", "w")))
"""


def of_labels(interpreter: Interpreter, body: str, folder: Path, *options: str, key: str = "work") -> None:
    """Checks that all that a program has made for each work has its label; for ``[no label]``, none."""
    program = folder / "program.py"
    size, every = size_and_period(interpreter)
    program.write_text(PROGRAM.replace("SIZE", str(size)) + body)
    profile = folder / "p.nthb"
    interpreter.nthbyte("run", "--every", every, *options, "-f", "-o", profile, program, folder=folder).ok()
    # With what it has forked.
    assert made(profile, key, size, "--all") == json.loads((folder / "truth.json").read_text())


def size_and_period(interpreter: Interpreter) -> tuple[int, str]:
    """Returns the size of a program's objects, and the period under which each of them is sampled."""
    if interpreter.is_pypy:
        # What PyPy's compiler allocates has the label of what it compiles, and PyPy allocates whatever it computes.
        return LARGE
    return SIZE, "1"


def made(profile: Path, key: str, size: int = SIZE, *options: str) -> Counter[str]:
    """How many of its objects a program has made, by label."""
    found: Counter[str] = Counter()
    for value in summary(profile, "--by", f"label:{key}", *options)["rows"]:
        rows = summary(profile, *options, "--label", f"{key}={value['name']}")["rows"]
        # What else the function makes is less than one of the objects.
        bytes_made = sum(row["self_bytes"]["estimate"] for row in rows if row["name"] == "make")
        found[value["name"]] = int(bytes_made) // size
    return +found


def test_labels_are_those_of_the_context(interpreter: Interpreter, tmp_path: Path) -> None:
    """Nested, shared, left in any order and anywhere; over await, tasks and threads; in a generator's steps only."""
    of_labels(
        interpreter,
        """
label = nthbyte.label
make("[no label]", 2)
with label(work="outer", tenant=3):
    make("outer", 3)
    with label(work="inner"):
        make("inner", 4)
    with label(tenant="x"):
        make("outer")
    with label(work="inner"), label(work="inner"):
        make("inner")
make("[no label]")

# One object at many places at a time, and left in the order in which it was entered.
shared, other = label(work="shared"), label(work="other")
shared.__enter__(); other.__enter__()
make("other", 2)
shared.__exit__(None, None, None)
make("other", 2)
other.__exit__(None, None, None)
make("[no label]")

# Left where it was not entered.
one, two = contextvars.copy_context(), contextvars.copy_context()
one.run(shared.__enter__)
two.run(shared.__exit__, None, None, None)
one.run(make, "shared")
two.run(make, "[no label]")
shared.__exit__(None, None, None)

def deep(depth):
    with label(work=f"level {depth % 3}"):
        make(f"level {depth % 3}")
        if depth:
            deep(depth - 1)
deep(40)

@label(work="steps")
def steps():
    make("steps")
    got = yield 1
    make(got)
    try:
        yield 2
    finally:
        make("steps")

for _ in steps():
    make("[no label]")
    break

def lends():
    with label(work="lent"):
        make("lent"); yield
# As all context variables do, until the generator goes on.
for _ in lends():
    make("lent")
make("[no label]")

running = steps()
next(running)
assert running.send("steps") == 2
make("[no label]")
running.close()

@label(work="function")
def function(work):
    "doc"
    make(work)
    return 5
assert function("function") == 5 and function.__doc__ == "doc" and function.__name__ == "function"

@label(work="coroutine")
async def coroutine():
    make("coroutine")
    await asyncio.sleep(0)
    make("coroutine")

@label(work="stream")
async def stream():
    for item in range(3):
        await asyncio.sleep(0)
        make("stream")
        yield item

async def task(number):
    work = f"task {number % 7}"
    with label(work=work):
        await asyncio.sleep(0)
        make(work)
        await asyncio.gather(child(work), child(work))
        await asyncio.to_thread(make, work)
        await asyncio.get_running_loop().run_in_executor(None, make, work)

async def child(work):
    await asyncio.sleep(0)
    make(work)

async def late():
    await asyncio.sleep(0.01)
    make("shared")

async def main():
    await asyncio.gather(coroutine(), coroutine(), *(task(number) for number in range(100)))
    async for _ in stream():
        make("[no label]")
    with shared:
        # It outlives the block, and keeps its label.
        background = asyncio.create_task(late())
    await background
    make("[no label]")
    asyncio.get_running_loop().run_in_executor(None, make, "[no label]")
asyncio.run(main())

with ThreadPoolExecutor(1) as pool:
    another = contextvars.ContextVar("another", default=None)
    another.set("of the main thread")
    with label(work="pool"):
        pool.submit(make, "pool", count=2).result()
        # Labels come along, and nothing else.
        assert pool.submit(another.get).result() is None
    pool.submit(make, "[no label]").result()
    with label(work="pool 2"):
        list(pool.map(make, ["pool 2"] * 3))
with shared:
    thread = threading.Thread(target=make, args=["[no label]"])
    thread.start()
    thread.join()
""",
        tmp_path,
    )


def test_tasks_of_asyncio_have_their_names_or_those_of_who_created_them(
    interpreter: Interpreter, tmp_path: Path
) -> None:
    """By name, else by coroutine; as a chain. CPython knows those created with a context of their own, too."""
    if interpreter.python_version < (3, 11):
        pytest.skip("the program uses task groups")
    of_labels(
        interpreter,
        """
import sys
import nthbyte.integrations.asyncio

# Of a task that this does not label.
def own(name):
    return "[no label]" if sys.implementation.name == "pypy" else name

async def leaf(work, count=1):
    make(work)
    await asyncio.sleep(0.001)
    make(work)
    if count:
        await asyncio.gather(*(leaf(work, count - 1) for _ in range(3)))
    await asyncio.to_thread(make, work)

async def alone():
    make(own("alone"))

async def named(work, leaves):
    async with asyncio.TaskGroup() as group:
        group.create_task(leaf(leaves))
        group.create_task(leaf("other", 0), name="other")
        group.create_task(alone(), context=contextvars.Context())
    make(work)

async def main(fetch, leaves):
    task = asyncio.create_task(named(fetch, leaves), name="fetch")
    make(own("main"))
    await task
    make(own("main"))

nthbyte.integrations.asyncio.label()
asyncio.run(main("fetch", "leaf"))
nthbyte.integrations.asyncio.label(chain=True)
async def crawl():
    make("crawl")
    await asyncio.create_task(leaf("crawl > leaf"))
async def begin():
    factory = getattr(asyncio, "eager_task_factory", None)
    asyncio.get_running_loop().set_task_factory(factory)
    await asyncio.create_task(crawl())
    make(own("begin"))
asyncio.run(begin())
""",
        tmp_path,
        key="task",
    )


TASKS = """
import sys
async def leaf(task):
    make(task)
    await asyncio.sleep(0.001)
    make(task)
    await asyncio.to_thread(make, "[no label]")

async def fetch():
    make("fetch")
    names = "first", "größe", "x" * 300
    await asyncio.gather(*(asyncio.create_task(leaf(name), name=name) for name in names))

async def renamed():
    make("renamed")
    asyncio.current_task().set_name("later")
    make("later")
    with nthbyte.label(task="of its own", work="x"):
        make("of its own")
    asyncio.get_running_loop().call_soon(make, "[no label]")
    await asyncio.sleep(0)

async def main():
    make("main")
    await fetch_in_group()
    make("main")

async def fetch_in_group():
    async with asyncio.TaskGroup() as group:
        group.create_task(fetch())
        group.create_task(renamed())
        group.create_task(leaf("alone"), name="alone", context=contextvars.Context())
    class Derived(asyncio.Task):
        pass
    def derived(loop, coro, **options):
        return Derived(coro, loop=loop, **options)
    asyncio.get_running_loop().set_task_factory(derived)
    await asyncio.create_task(leaf("derived"), name="derived")
    # One after the other, so that tasks and names come to be where others were, as the dictionary of the thread grows.
    kept = []
    for number in range(20):
        kept.append(threading.local())
        kept[-1].number = number
        name = f"short {number % 7}"
        await asyncio.create_task(short(name), name="".join(name))
    del kept
    await asyncio.create_task(short("last"), name="last")

async def short(task):
    make(task)
    await asyncio.sleep(0)
    make(task)

make("[no label]")
asyncio.run(main())
make("[no label]")
other = threading.Thread(target=asyncio.run, args=(main(),))
other.start()
other.join()
make("[no label]")
"""


def test_tasks_of_asyncio_have_names_without_a_call(cpython: Interpreter, tmp_path: Path) -> None:
    """By the name that they have then, else by coroutine; the first one, too; the program's own label wins."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("SIZE", str(SIZE)) + TASKS)
    cpython.nthbyte("run", "--every", "1", "-f", "-o", "p.nthb", program, folder=tmp_path).ok()
    truth = json.loads((tmp_path / "truth.json").read_text())
    truth["x" * 248] = truth.pop("x" * 300)
    found = made(tmp_path / "p.nthb", "task")
    assert found == truth
    assert [row["name"] for row in summary(tmp_path / "p.nthb", "--by", "task")["rows"]][:3]
    threads = {row["name"] for row in summary(tmp_path / "p.nthb", "--by", "thread")["rows"]}
    assert {"MainThread", "asyncio_0"} <= threads
    if cpython.python_version < (3, 14):
        return
    waiting = made(tmp_path / "p.nthb", "awaited_by")
    # The longest name leaves no room for who waits.
    assert waiting["main > fetch"] == 2 * 2 * 2
    # What fetch, renamed, alone, derived and the short ones make.
    assert waiting["main"] == 2 * (1 + 1 + 1 + 1 + 2 + 2 + 21 * 2)


def test_time_samples_of_tasks_have_names(cpython: Interpreter, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """
import asyncio, time
async def spend(seconds):
    kept = [bytes(1000) for _ in range(1000)]
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        await asyncio.sleep(0)
        sum(range(10_000))
async def main():
    await asyncio.create_task(spend(0.4), name="spender")
asyncio.run(main())
"""
    )
    done = cpython.nthbyte("run", "--cpu", "--every", "1", "-o", "p.nthb", program, folder=tmp_path)
    if "process_vm_readv" in done.err:
        pytest.skip("time samples are not possible here")
    done.ok()
    rows = summary(tmp_path / "p.nthb", "--by", "task")["time"]["rows"]
    assert {row["name"]: row["samples"] for row in rows}["spender"] > 0


@pytest.mark.slow
def test_a_thousand_tasks_have_their_labels(interpreter: Interpreter, tmp_path: Path) -> None:
    of_labels(
        interpreter,
        """
async def request(number):
    work = f"/{number % 50}"
    with nthbyte.label(work=work, number=number):
        for _ in range(2):
            await asyncio.sleep(0)
            make(work)

async def main():
    await asyncio.gather(*(request(number) for number in range(1000)))
asyncio.run(main())
""",
        tmp_path,
    )
    values = {row["name"] for row in summary(tmp_path / "p.nthb", "--by", "label:number")["rows"]}
    assert {str(number) for number in range(1000)} <= values


def test_estimates_by_label_are_near_the_truth(interpreter: Interpreter, tmp_path: Path) -> None:
    """With samples, the intervals of each label have what was made for it."""
    size = 8_000
    body = """
async def request(number):
    work = ["/few", "/many", "/many"][number % 3]
    with nthbyte.label(work=work):
        for _ in range(20):
            await asyncio.sleep(0)
            make(work)

async def main():
    make("[no label]", 1000)
    await asyncio.gather(*(request(number) for number in range(300)))
asyncio.run(main())
"""
    (tmp_path / "program.py").write_text(PROGRAM.replace("SIZE", str(size)) + body)
    interpreter.nthbyte("run", "--every", "16KiB", "-o", "p.nthb", "program.py", folder=tmp_path).ok()
    truth = json.loads((tmp_path / "truth.json").read_text())
    assert truth == {"[no label]": 1000, "/few": 2000, "/many": 4000}
    for work, count in truth.items():
        rows = summary(tmp_path / "p.nthb", "--label", f"work={work}")["rows"]
        [of_make] = [row for row in rows if row["name"] == "make"]
        # A list has its items and a head.
        assert is_near(of_make["self_bytes"], count * (size + 56)), work


@pytest.mark.slow
def test_an_executor_does_not_keep_the_labels_of_its_first_work(cpython: Interpreter, tmp_path: Path) -> None:
    """From 3.14 on, an option gives threads the context of those who start them."""
    body = """
with ThreadPoolExecutor(1) as pool:
    with nthbyte.label(work="first"):
        pool.submit(make, "first").result()
    pool.submit(make, "[no label]").result()
    with nthbyte.label(work="second"):
        pool.submit(make, "second").result()

    async def main(work):
        await asyncio.get_running_loop().run_in_executor(pool, make, work)
    with nthbyte.label(work="third"):
        asyncio.run(main("third"))
    asyncio.run(main("[no label]"))
"""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("SIZE", str(SIZE)) + body)
    words = [
        "-X",
        "thread_inherit_context=1",
        "-m",
        "nthbyte",
        "run",
        "--every",
        "1",
        "-o",
        "p.nthb",
        program,
    ]
    cpython.python(*words, folder=tmp_path).ok()
    assert made(tmp_path / "p.nthb", "work") == json.loads((tmp_path / "truth.json").read_text())


def test_processes_of_an_executor_do_not_keep_the_labels_of_its_first_work(
    interpreter: Interpreter, tmp_path: Path
) -> None:
    """They are forked where the first work is given, and serve all. A forked process has the labels of its parent."""
    of_labels(
        interpreter,
        """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

fork = multiprocessing.get_context("fork")
with ProcessPoolExecutor(1, mp_context=fork) as pool:
    with nthbyte.label(work="first"):
        make("first")
        pool.submit(make, "-").result()
        make("first")
    list(pool.map(make, "--"))
with nthbyte.label(work="child"):
    child = fork.Process(target=make, args=["-"])
    child.start()
    child.join()
# What the processes make is counted here: each of them has its own counter.
truth.update({"[no label]": 3, "child": 1})
""",
        tmp_path,
    )


def test_time_samples_have_labels(cpython: Interpreter, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """
import time, nthbyte
def spend(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
with nthbyte.label(work="long"):
    spend(0.4)
"""
    )
    done = cpython.nthbyte("run", "--cpu", "-o", "p.nthb", program, folder=tmp_path)
    if "process_vm_readv" in done.err:
        pytest.skip("time samples are not possible here")
    done.ok()
    rows = summary(tmp_path / "p.nthb", "--by", "label:work")["time"]["rows"]
    labelled = {row["name"]: row["samples"] for row in rows}
    assert labelled["long"] > 0
    spent = {row["name"]: row for row in summary(tmp_path / "p.nthb", "--label", "work=long")["time"]["rows"]}
    assert set(spent) <= {"spend", "<module>"}


@pytest.mark.slow
def test_values_beyond_a_limit_are_together(cpython: Interpreter, tmp_path: Path) -> None:
    of = """
import nthbyte
for number in range(1_200):
    with nthbyte.label(user=number, **{f"key {number}": 1}):
        bytes(50_000)
"""
    program = tmp_path / "program.py"
    program.write_text(of)
    cpython.nthbyte("run", "--every", "1", "-o", "p.nthb", program, folder=tmp_path).ok()
    found = summary(tmp_path / "p.nthb", "--by", "label:user")
    rows = {row["name"]: row["self_bytes"]["estimate"] for row in found["rows"]}
    assert len(rows) == 1_000 + len(["(other)", "[no label]"])
    assert rows["(other)"] // 50_000 == 200
    assert any("more than 1,000 values" in note for note in found["notes"])
    assert "key 5" in report("summary", "p.nthb", "--label", "nothing", folder=tmp_path).err


@pytest.mark.parametrize(
    "disagree",
    [
        # The thread's state has another word where its context should be.
        "native.locate_context(contextvars.Context())",
        # A walk through the context's map ends elsewhere.
        pytest.param("native.sees_label = lambda expected: None", marks=pytest.mark.slow),
    ],
)
def test_an_offset_that_disagrees_switches_labels_off(
    disagree: str, cpython: Interpreter, tmp_path: Path
) -> None:
    """The program runs as before, nothing is mislabelled, and the profile says why it has no labels, in one line."""
    program = tmp_path / "program.py"
    program.write_text(
        f"""
import contextvars
import nthbyte
from nthbyte import _agent
native = _agent.load()._native
{disagree}
with nthbyte.label(work="one"):
    with nthbyte.label(work="two"):
        kept = [[None] * 1000 for _ in range(100)]
print(len(kept))
"""
    )
    done = cpython.nthbyte("run", "--every", "1", "-o", "p.nthb", program, folder=tmp_path).ok()
    assert done.out == "100\n"
    notes = summary(tmp_path / "p.nthb")["notes"]
    assert sum(note.startswith("labels are off: ") for note in notes) == 1, notes
    refused = report("summary", tmp_path / "p.nthb", "--by", "label:work", folder=tmp_path)
    assert refused.status == 1
    assert "the profile has no labels" in refused.err


def test_reports_agree_who_pays_at_the_peak_at_the_end_and_who_holds_it(
    cpython: Interpreter, tmp_path: Path
) -> None:
    body = """
kept = {"/a": [], "/b": []}
def serve(path, count):
    with nthbyte.label(endpoint=path):
        for _ in range(count):
            kept[path].append([None] * (SIZE // 8))
serve("/a", 30)
serve("/b", 20)
kept["/b"].clear()
"""
    (tmp_path / "program.py").write_text(PROGRAM.replace("SIZE", str(SIZE)) + body.replace("SIZE", str(SIZE)))
    words = ["run", "--holders", "--every", "1", "-o", "p.nthb", "program.py"]
    cpython.nthbyte(*words, folder=tmp_path).ok()
    by = ("--by", "label:endpoint")

    def alive(at: str) -> list[int]:
        rows = {row["name"]: row for row in summary(tmp_path / "p.nthb", *by, "--at", at)["rows"]}
        return [round(rows[path]["alive"]["estimate"] / SIZE) for path in ("/a", "/b")]

    assert alive("peak") == [30, 20]
    assert alive("end") == [30, 0]

    def said(*words: str) -> str:
        return report(*words, "p.nthb", "--alone", *by, folder=tmp_path).ok().out

    stacks = said("export", "--to", "collapsed", "-o", "-").splitlines()
    for path, made_there in ("/a", 30), ("/b", 20):
        of_path = [line for line in stacks if line.startswith(f"endpoint={path};")]
        assert round(sum(int(line.rpartition(" ")[2]) for line in of_path) / SIZE) == made_there
    tops = [line.split()[-1] for line in said("tree").splitlines() if "endpoint=" in line]
    assert tops == ["endpoint=/a", "endpoint=/b"]
    holders = said("holders").splitlines()
    [at] = [number for number, line in enumerate(holders) if line.split()[-1:] == ["/a"]]
    assert "held by kept['/a']" in holders[at + 1]
    compared = report("diff", "p.nthb", "p.nthb", "--json", *by, folder=tmp_path).ok().out
    assert {row["name"] for row in json.loads(compared)["rows"]} == {"/a", "/b", "[no label]"}


def test_labels_of_a_sub_interpreter_do_nothing(cpython: Interpreter, tmp_path: Path) -> None:
    of_labels(
        cpython,
        """
try:
    import _interpreters
except ImportError:
    import _xxsubinterpreters as _interpreters
code = '''
import nthbyte
with nthbyte.label(work="inner"):
    print([None] * 10)
'''
with nthbyte.label(work="outer"):
    make("outer")
    inner = _interpreters.create()
    # From 3.13 on an error is returned, not raised.
    assert _interpreters.run_string(inner, code) is None
    make("outer")
    _interpreters.destroy(inner)
make("[no label]")
""",
        tmp_path,
    )


def test_a_label_has_keys(interpreter: Interpreter, tmp_path: Path) -> None:
    program = """
import nthbyte
for arguments in [], ["/checkout"], [{"endpoint": "/"}]:
    try:
        nthbyte.label(*arguments)
    except TypeError as error:
        print(error)
"""
    done = interpreter.python("-c", program, folder=tmp_path).ok()
    assert done.out.count("keys with values, such as nthbyte.label(endpoint=") == 3
