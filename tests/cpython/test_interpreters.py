"""Subinterpreters, with the main GIL and with their own GILs, while tracemalloc runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import IS_ALL, Done, Interpreter, summary

# Each interpreter allocates in two threads, and so does the main one. Prints errors.
PROGRAM = """
import sys, threading, tracemalloc
try:
    import _interpreters
    make = lambda own: _interpreters.create("isolated" if own else "legacy")
    execute = lambda interpreter, code: _interpreters.exec(interpreter, code)
except ImportError:
    import _xxsubinterpreters as _interpreters
    make = lambda own: _interpreters.create(isolated=own)
    execute = _interpreters.run_string

CODE = '''
def work():
    for turn in range(40):
        keep = [[number, str(number), {number: [number]}, bytes(number)] for number in range(600)]
        assert [item[3] for item in keep[::7]] == [bytes(number) for number in range(0, 600, 7)]
'''
MORE = CODE + '''
import threading
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads: thread.start()
work()
for thread in threads: thread.join()
'''
exec(CODE)
kept = [[bytes(number)] for number in range(3000)]
failed = []

def run(interpreter):
    if execute(interpreter, MORE) is not None:
        failed.append(interpreter)

def together(interpreters):
    threads = [threading.Thread(target=run, args=(one,)) for one in interpreters]
    for thread in threads: thread.start()
    work()
    for thread in threads: thread.join()

own = {own}
{steps}
assert [item[0] for item in kept] == [bytes(number) for number in range(3000)]
assert not failed
print("fine")
"""

STEPS = {
    "none": "together([make(own), make(own)])",
    "around their making": "tracemalloc.start()\nmade = [make(own), make(own)]\ntracemalloc.stop()\ntogether(made)",
    "around everything": (
        "tracemalloc.start()\nmade = [make(own)]\ntogether(made)\ntracemalloc.stop()\ntogether(made)"
    ),
    "while they exist": (
        "made = [make(own)]\ntracemalloc.start()\nwork()\ntogether(made)\ntracemalloc.stop()\ntogether(made)"
    ),
    "stopped before": "tracemalloc.start()\nwork()\ntracemalloc.stop()\ntogether([make(own)])",
}


def _both(program: str, cpython: Interpreter, folder: Path) -> None:
    """Runs a program without nthbyte. If it succeeds, runs it with nthbyte."""
    script = folder / "app.py"
    script.write_text(program)

    def run_plain() -> Done | None:
        """Returns None if it hangs."""
        try:
            return cpython.python(script, folder=folder, idle=5)
        except AssertionError:
            return None

    def fails() -> bool:
        done = run_plain()
        return done is None or done.status != 0

    plain = run_plain()
    if plain is None:
        pytest.skip("it hangs without nthbyte, too")
    if plain.status != 0:
        pytest.skip(f"it fails without nthbyte, too: {plain.err[-200:]}")
    done = cpython.nthbyte("run", "-q", "--every", "2K", "-o", "out.nthb", script, folder=folder)
    # Some programs crash now and then.
    if done.status != 0 and any(fails() for _ in range(10)):
        pytest.skip("it fails without nthbyte, too, but not always")
    done.ok()
    assert (done.out, done.err) == (plain.out, plain.err)
    found = summary(folder / "out.nthb")
    assert found["complete"]
    assert found["samples"] > 100


# `make test` has each of the steps with one kind of GIL, `make test-all` with both.
CASES = [
    (steps, own) for at, steps in enumerate(STEPS) for own in (True, False) if IS_ALL or own == (at % 2 == 0)
]


@pytest.mark.parametrize(
    ("steps", "own"), CASES, ids=[f"{steps}-{'own' if own else 'main'} GIL" for steps, own in CASES]
)
def test_interpreters_and_tracemalloc(steps: str, own: bool, cpython: Interpreter, tmp_path: Path) -> None:
    if cpython.python_version < (3, 12):
        pytest.skip("has one GIL")
    program = PROGRAM.replace("{own}", str(own)).replace("{steps}", STEPS[steps])
    _both(program, cpython, tmp_path)


POOL = """
import tracemalloc
from concurrent import interpreters
from concurrent.futures import InterpreterPoolExecutor

tracemalloc.start()
one = interpreters.create()
tracemalloc.stop()
one.exec("kept = [[number] for number in range(10000)]")
with InterpreterPoolExecutor(2) as pool:
    results = list(pool.map(sorted, [list(range(size, 0, -1)) for size in range(1000, 1020)]))
assert [len(result) for result in results] == list(range(1000, 1020))
one.close()
print("fine")
"""


def test_a_pool_of_interpreters(cpython: Interpreter, tmp_path: Path) -> None:
    if cpython.python_version < (3, 14):
        pytest.skip("has no such pool")
    _both(POOL, cpython, tmp_path)


INSIDE = """
import nthbyte
try:
    import _interpreters
    make, execute = (lambda: _interpreters.create("legacy")), _interpreters.exec
except ImportError:
    import _xxsubinterpreters as _interpreters
    make, execute = (lambda: _interpreters.create(isolated=False)), _interpreters.run_string
CODE = '''
import nthbyte
try:
    nthbyte.start("inside.nthb")
except Exception as error:
    print(error, flush=True)
'''
execute(make(), CODE)
with nthbyte.Profiler("first.nthb"):
    pass
execute(make(), CODE)
"""


def test_no_session_begins_in_another_interpreter(cpython: Interpreter, tmp_path: Path) -> None:
    """Neither before nor after the agent is loaded."""
    (tmp_path / "app.py").write_text(INSIDE)
    done = cpython.python("app.py", folder=tmp_path).ok()
    refusals = done.out.splitlines()
    assert len(refusals) == 2
    assert all("cannot start in a sub-interpreter" in line for line in refusals)
    assert not (tmp_path / "inside.nthb").exists()
