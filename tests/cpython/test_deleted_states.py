"""A program that embeds Python may delete a thread's state in another thread. The thread still has the address."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness import Interpreter, is_near, summary

LIBRARY = r"""
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern int PyGILState_Ensure(void);
extern void *PyEval_SaveThread(void), *PyGILState_GetThisThreadState(void);
extern void PyEval_RestoreThread(void *), PyThreadState_Clear(void *), PyThreadState_Delete(void *);

/* Of a state, what a walk reads first. */
enum { SIZE = 256 };

static void *state;
static atomic_int step;

static void wait_for(int wanted) {
    while (step != wanted) usleep(100);
}

static void *work(void *nothing) {
    PyGILState_Ensure();
    state = PyEval_SaveThread();
    step = 1;
    wait_for(2);
    for (int block = 0; block < 500; block++) {
        volatile char *place = malloc(100000);
        *place = 1;
        free((void *)place);
    }
    step = 3;
    return nothing;
}

/* Makes a thread with a state, and deletes the state. Returns whether its memory has been allocated again by then.
   Called with the GIL. */
int delete_state(void) {
    pthread_t thread;
    int is_taken = 0;
    pthread_create(&thread, NULL, work, NULL);
    void *own = PyEval_SaveThread();
    wait_for(1);
    PyEval_RestoreThread(own);
    PyThreadState_Clear(state);
    PyThreadState_Delete(state);
    for (size_t size = SIZE; size < 16384 && !is_taken; size += 16)
        for (int turn = 0; turn < 20 && !is_taken; turn++) {
            char *other = malloc(size);
            memset(other, 0, size);
            is_taken = other <= (char *)state && (char *)state + SIZE <= other + size;
        }
    return is_taken;
}

/* Makes the memory look as if the state of the calling thread were there. Called with the GIL. */
void take_its_place(void) {
    memcpy(state, PyGILState_GetThisThreadState(), SIZE);
}

/* Lets the thread without a state allocate. */
void go_on(void) {
    step = 2;
}

int is_done(void) {
    return step == 3;
}
"""

PROGRAM = """
import ctypes, threading, time
with_gil = ctypes.PyDLL(None)
with_gil.malloc.restype = ctypes.c_void_p

def after():
    for _ in range(500):
        with_gil.free(ctypes.c_void_p(with_gil.malloc(ctypes.c_size_t(100_000))))

def another():
    if is_taken:
        states.take_its_place()
    states.go_on()
    # Not in the library: what its threads do then is shown below the call.
    while not states.is_done():
        time.sleep(0.01)

states = ctypes.PyDLL("./libstates.so")
is_taken = states.delete_state()
print(is_taken)
running = threading.Thread(target=another)
running.start()
running.join()
after()
"""


def test_a_state_that_another_thread_has_deleted_is_not_read(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "states.c").write_text(LIBRARY)
    compile_it = ["cc", "-O1", "-shared", "-fPIC", "-pthread", "-o", "libstates.so", "states.c"]
    subprocess.run(compile_it, cwd=tmp_path, check=True)
    (tmp_path / "app.py").write_text(PROGRAM)
    words = ["run", "-q", "--native", "--every", "64KiB", "-o", "out.nthb", "app.py"]
    done = cpython.nthbyte(*words, folder=tmp_path).ok()
    found = summary(tmp_path / "out.nthb", "--domain", "native", "--by", "function")
    rows = {row["name"]: row["total_bytes"] for row in found["rows"]}
    assert is_near(rows.pop("after"), 50_000_000), rows
    assert "another" not in rows or rows["another"]["estimate"] < 10_000_000, rows
    assert any(is_near(total, 50_000_000) for total in rows.values()), rows
    if done.out != "1\n":
        pytest.skip("the memory of the state was not allocated again")


# Samples of memory that is allocated with and without the GIL, before and after forks.
FORKS = """
import ctypes, os
with_gil, without = ctypes.PyDLL(None), ctypes.CDLL(None)

def allocate(library):
    for _ in range(500):
        library.free(ctypes.c_void_p(library.malloc(ctypes.c_size_t(100_000))))

def attached():
    allocate(with_gil)

def released():
    allocate(without)

for library in (with_gil, without):
    library.malloc.restype = ctypes.c_void_p
for depth in range(3):
    attached()
    released()
    print(os.getpid(), flush=True)
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        break
"""


def test_a_forked_child_has_stacks(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(FORKS)
    words = ["run", "-q", "--native", "--every", "64KiB", "-o", "out.nthb", "app.py"]
    done = cpython.nthbyte(*words, folder=tmp_path).ok()
    _, *children = done.out.split()
    assert len(children) == 2
    for profile in ("out.nthb", *(f"out.{child}.nthb" for child in children)):
        found = summary(tmp_path / profile, "--domain", "native", "--by", "function")
        rows = {row["name"]: row["total_bytes"] for row in found["rows"]}
        for name in ("attached", "released"):
            assert is_near(rows[name], 50_000_000), (profile, name, rows)
