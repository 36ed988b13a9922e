"""Families of profiles: of a pool of processes, and the reasons why some cannot be shown."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from harness import Interpreter, report, rows_so_far, summary
from processes import family

POOL = """
import concurrent.futures, multiprocessing, os

class Ticket:
    __slots__ = ("number",)

    def __init__(self, number):
        self.number = number

class Kept(Ticket):
    __slots__ = ()

def work(n):
    return len([Ticket(number) for number in range(n)])

if __name__ == "__main__":
    keep = [Kept(number) for number in range(20000)]
    context = multiprocessing.get_context("{method}")
    with concurrent.futures.ProcessPoolExecutor(3, mp_context=context) as pool:
        assert sum(pool.map(work, [5000] * 16)) == 80000
"""

# A process forks one that allocates much; before, it allocates as many objects itself as is told.
GRANDCHILD = """
import os
keep = [bytes(1000 + n % 8) for n in range(4000)]
if os.fork() == 0:
    own = [bytes(1000 + n % 8) for n in range({own})]
    if os.fork() == 0:
        more = [bytes(1000 + n % 8) for n in range(8000)]
        os._exit(0)
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
assert os.wait()[1] == 0
"""


# Children that do the same, one after the other.
SIBLINGS = """
import multiprocessing
def work():
    keep = [bytes(1000) for _ in range(5000)]
if __name__ == "__main__":
    context = multiprocessing.get_context("{method}")
    for _ in range(6):
        process = context.Process(target=work)
        process.start()
        process.join()
        assert process.exitcode == 0
"""

# Children that fork before they allocate much. CPython 3.12 and later count the threads after each fork: they open a
# file for that, which is an allocation like any other.
FORKING_CHILDREN = """
import os
for _ in range(60):
    if os.fork() == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
    assert os.wait()[1] == 0
"""


def run(interpreter: Interpreter, program: str, folder: Path, *options: str) -> Path:
    """Runs a program; returns the profile of its first process."""
    (folder / "app.py").write_text(program)
    interpreter.nthbyte("run", *options, "-o", "app.nthb", "app.py", folder=folder).ok()
    return folder / "app.nthb"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_has_one_answer(method: str, interpreter: Interpreter, tmp_path: Path) -> None:
    if interpreter.is_pypy and method == "spawn":
        pytest.skip("PyPy's concurrent.futures cannot start processes so")
    first = run(interpreter, POOL.format(method=method), tmp_path, "--every", "4KiB")
    whole = family.check(first)
    assert len(whole["processes"]) > 1
    assert whole["complete"]


def test_what_is_inherited_counts_once(cpython: Interpreter, tmp_path: Path) -> None:
    first = run(cpython, POOL.format(method="fork"), tmp_path, "--every", "1")
    whole = family.check(first)
    rows = summary(first, "--all", "--by", "type")["rows"]

    def made(name: str) -> float:
        return sum(row["allocations"]["estimate"] for row in rows if row["name"].endswith(name))

    # Every allocation is recorded, but few have no known type, and the first few of each child are missing: those from
    # free lists that its parent filled.
    assert 19900 < made("Kept") <= 20000
    assert 79000 < made("Ticket") <= 80000
    # The agents' own counts are of each process's own allocations.
    assert whole["bytes_allocated"] == pytest.approx(whole["all"]["bytes"]["estimate"], rel=1e-4)


@pytest.mark.parametrize("own", [0, 8000], ids=["a child without a profile", "a child with one"])
def test_grandchildren_belong_to_it(own: int, interpreter: Interpreter, tmp_path: Path) -> None:
    first = run(interpreter, GRANDCHILD.format(own=own), tmp_path, "--every", "64KiB")
    whole = family.check(first)
    heavy = [one for one in whole["processes"][1:] if one["bytes"]["low"] > 1 << 20]
    assert len(heavy) == (2 if own else 1)
    assert whole["pid"] not in {one["pid"] for one in heavy}


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_that_do_the_same_have_other_samples(
    method: str, interpreter: Interpreter, tmp_path: Path
) -> None:
    """Reports take the samples of processes for independent: at the same points, an interval would be too narrow."""
    first = run(
        interpreter, SIBLINGS.format(method=method), tmp_path, "-q", "--every", "64KiB", "--seed", "7"
    )
    children = [summary(path, "--by", "type")["rows"] for path in family.parts_of(first)[1:]]
    # Of the `bytes` objects only, of which all children make the same: about 80 samples.
    estimates = [
        sum(row["self_bytes"]["estimate"] for row in rows if row["name"].endswith("bytes"))
        for rows in children
    ]
    assert len(estimates) == 6
    assert max(estimates) > 1.02 * min(estimates) > 0, estimates


def test_a_child_that_records_nothing_writes_no_profile(interpreter: Interpreter, tmp_path: Path) -> None:
    """A server may fork thousands of them."""
    program = """
import os
for _ in range(5):
    if os.fork() == 0:
        os._exit(0)
    assert os.wait()[1] == 0
"""
    first = run(interpreter, program, tmp_path, "--every", "1TiB", "--no-native")
    assert family.parts_of(first) == [first]


def test_no_thread_of_a_child_is_there_when_it_forks(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(FORKING_CHILDREN)
    words = ["run", "-q", "--every", "16KiB", "-o", "app.nthb", "app.py"]
    done = cpython.nthbyte(*words, folder=tmp_path, flags=("-W", "always")).ok()
    assert not done.err


def test_an_older_runs_children_are_left_out(cpython: Interpreter, tmp_path: Path) -> None:
    def children() -> set[tuple[int, int, int]]:
        """The pid of each child's profile, and which file it is: pids are used again."""
        found = [(path.name, path.stat()) for path in family.parts_of(tmp_path / "app.nthb")[1:]]
        return {
            (int(name.split(".")[1].split("-")[0]), file.st_ino, file.st_mtime_ns) for name, file in found
        }

    run(cpython, POOL.format(method="fork"), tmp_path, "--every", "64KiB")
    old = children()
    assert old
    run(cpython, POOL.format(method="fork"), tmp_path, "--every", "64KiB", "-f")
    left = old & children()
    done = report("summary", "app.nthb", "--all", "--json", folder=tmp_path).ok()
    # A worker to which the others left no task has a profile without samples, and no row in a table.
    shown = [process["pid"] for process in json.loads(done.out)["processes"][1:]]
    assert sorted(shown) == sorted(pid for pid, *_ in children() - left)
    assert len(done.err.splitlines()) == bool(left)
    assert done.err.startswith("nthbyte: left out of the family of app.nthb: "[: len(done.err)])
    assert done.err.count("of another run") == min(len(left), 3)


# A child finds a file where its profile would be, made before its first sample. Its own child has no such trouble.
TAKEN = """
import os
def use():
    return [bytes(1000 + n % 8) for n in range(32_000)]
ready, made = os.pipe()
child = os.fork()
if child:
    with open(f"app.{child}.nthb", "w") as file:
        file.write("the only copy")
    os.write(made, b"1")
else:
    os.read(ready, 1)
    keep = use()
    if os.fork() == 0:
        keep = use()
        os._exit(0)
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
assert os.wait()[1] == 0
"""


def test_a_child_replaces_no_file(interpreter: Interpreter, tmp_path: Path) -> None:
    # With this seed, the child's first sample is not among its first kilobytes: the file is there before.
    first = run(interpreter, TAKEN, tmp_path, "--every", "1MiB", "--seed", "1")
    names = sorted(path.name for path in tmp_path.glob("app.*.nthb"))
    texts = [name for name in names if (tmp_path / name).read_bytes() == b"the only copy"]
    [child] = [name.removesuffix("-2.nthb") for name in names if name.endswith("-2.nthb")]
    assert texts == [f"{child}.nthb"]
    done = report("summary", first.name, "--all", "--json", folder=tmp_path).ok()
    # The text is no profile, and left out.
    assert done.err.count("\n") == 1
    _, one, other = json.loads(done.out)["processes"]
    assert f"app.{one['pid']}" == child
    assert (tmp_path / f"app.{other['pid']}.nthb").exists()


RECORDED_TWICE = """
import os, signal
def record():
    os.kill(os.getpid(), signal.SIGUSR1)
    keep = [bytes(1000 + n % 8) for n in range(8000)]
    os.kill(os.getpid(), signal.SIGUSR1)
if os.fork() == 0:
    record()
    record()
    os._exit(0)
assert os.wait()[1] == 0
record()
"""


def test_each_recording_of_a_child_belongs_to_the_family(interpreter: Interpreter, tmp_path: Path) -> None:
    there = set()
    # Also where the profile of an earlier run has the wanted name.
    for name in ("app", "app-2"):
        run(interpreter, RECORDED_TWICE, tmp_path, "--every", "64KiB", "--signal", "USR1")
        whole = summary(tmp_path / f"{name}.nthb", "--all")
        parent, *children = [process["pid"] for process in whole["processes"]]
        assert len(children) == 2 and len({parent, *children}) == 2
        there |= {f"{name}.nthb", f"{name}.{children[0]}.nthb", f"{name}.{children[0]}-2.nthb"}
        assert {path.name for path in tmp_path.glob("*.nthb")} == there


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first profile of a family, for tests that only look at it."""
    from harness import cpythons

    folder = tmp_path_factory.mktemp("forked")
    return run(cpythons()[0], POOL.format(method="fork"), folder, "--every", "64KiB", "-q")


def said(folder: Path, *words: str | Path) -> str:
    """Runs a command that must fail with one line, and returns that."""
    done = report(*words, folder=folder)
    assert (done.status, done.out) == (1, "")
    [line] = done.err.splitlines()
    return line


COMMANDS = [["summary"], ["tree"], ["flamegraph", "-o", "out"], ["export", "--to", "pprof", "-o", "out"]]
COMMANDS += [["merge", "-o", "out"], ["view", "--no-browser"]]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_what_cannot_be_shown_is_said_in_a_line(command: list[str], forked: Path, tmp_path: Path) -> None:
    first, child = (shutil.copy(path, tmp_path) for path in family.parts_of(forked)[:2])
    child = Path(child).name
    os.link(first, tmp_path / "link.nthb")
    (tmp_path / "text.nthb").write_text("no profile")

    def line(*words: str) -> str:
        return said(tmp_path, *command, *words)

    assert line("app.nthb", "link.nthb") == "nthbyte: app.nthb and link.nthb are the same file"
    assert line("app.nthb", child, "./app.nthb") == "nthbyte: app.nthb and ./app.nthb are the same file"
    for words in (["app.nthb", "text.nthb"], ["text.nthb", "--all"]):
        assert line(*words) == "nthbyte: cannot read text.nthb: not an nthbyte profile (.nthb)"
    assert line("app.nthb", "no.nthb").startswith("nthbyte: cannot read no.nthb: ")
    assert line(child, "--all") == (
        f"nthbyte: {child} is the profile of a child: --all needs that of the first process, app.nthb"
    )
    assert not (tmp_path / "out").exists()


def test_a_member_named_twice_counts_once(forked: Path) -> None:
    whole = summary(forked, "--all")
    [_, child, *_] = family.parts_of(forked)
    assert summary(forked, "--all", str(child)) == whole


def test_a_session_counts_once(forked: Path, tmp_path: Path) -> None:
    [first, child, *_] = (Path(shutil.copy(path, tmp_path)) for path in family.parts_of(forked))
    report("merge", "app.nthb", "--all", "-o", "whole.nthb", folder=tmp_path).ok()
    twice = said(tmp_path, "summary", "whole.nthb", child.name)
    number = child.name.split(".")[1]
    assert twice == f"nthbyte: the session of process {number} is in two of the profiles: name it once"
    shutil.copy(first, tmp_path / "copy.nthb")
    assert "is in two of the profiles" in said(tmp_path, "merge", "app.nthb", "copy.nthb", "-o", "out.nthb")


def test_members_that_cannot_be_read_are_left_out(forked: Path, tmp_path: Path) -> None:
    for path in family.parts_of(forked):
        shutil.copy(path, tmp_path)
    (tmp_path / "app.1.nthb").touch()
    done = report("summary", "app.nthb", "--all", "--json", folder=tmp_path).ok()
    assert done.err == (
        "nthbyte: left out of the family of app.nthb: app.1.nthb (the file is empty: was the program stopped "
        "before it began?)\n"
    )
    assert done.out == report("summary", forked, "--all", "--json", folder=tmp_path).ok().out


def test_merge_destroys_no_profile(forked: Path, tmp_path: Path) -> None:
    parts = [Path(shutil.copy(path, tmp_path)) for path in family.parts_of(forked)]
    before = {path: path.read_bytes() for path in parts}
    assert "it is the file that is read" in said(tmp_path, "merge", "app.nthb", "--all", "-o", parts[1])
    other = tmp_path / "other.nthb"
    shutil.copy(forked, other)
    assert "--force" in said(tmp_path, "merge", "app.nthb", "--all", "-o", other)
    assert "for a terminal" in said(tmp_path, "merge", "app.nthb", "--all", "-o", "-")
    assert {path: path.read_bytes() for path in parts} == before
    report("merge", "app.nthb", "--all", "-o", other, "--force", folder=tmp_path).ok()
    assert summary(other) == summary(forked, "--all")


# Its parent forks, allocates a little, and rests. The child ends it with SIGTERM when standard input ends.
RESTING = """
import os, signal, sys

def later():
    return [bytes(1000 + n % 8) for n in range(8000)]

if os.fork() == 0:
    sys.stdin.read()
    os.kill(os.getppid(), signal.SIGTERM)
    os._exit(0)
kept = later()
while True:
    signal.pause()
"""


def test_a_parent_that_rests_after_a_fork_has_its_samples(interpreter: Interpreter, tmp_path: Path) -> None:
    profile = tmp_path / "app.nthb"
    words = ("run", "-q", "--every", "1KiB", "-o", profile, "-c", RESTING)
    done = interpreter.nthbyte(*words, folder=tmp_path, until=lambda: "later" in rows_so_far(profile))
    assert done.status == -signal.SIGTERM
    found = summary(profile)
    assert found["complete"] and found["lost"] == 0
    assert [note for note in found["notes"] if "was ended by SIGTERM" in note]
    assert any(row["name"] == "later" for row in found["rows"])
