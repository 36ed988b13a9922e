"""Samples need stack, and no more than the guide says.

Where a tick has too little it is lost, and nothing below the end of the stack is written.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness import SPEND, Interpreter, summary


def room(interpreter: Interpreter) -> int:
    """The room that the handler asks for, in bytes: docs/internals/time-samples.md states it."""
    return 5632 if interpreter.is_pypy else 4096


# Gives the main thread an alternate stack for signals, and prints how much of it was used, how much was written below
# its end, and what the kernel's own frame takes.
PROGRAM = (
    SPEND
    + """
import ctypes, sys

class Stack(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

BELOW, MARK, AT_MINSIGSTKSZ = 1 << 16, 0xA5, 51
size = int(sys.argv[1])
libc = ctypes.CDLL(None)
libc.getauxval.restype = ctypes.c_ulong
memory = ctypes.create_string_buffer(bytes([MARK]) * (BELOW + size), BELOW + size)
stack = Stack(ctypes.addressof(memory) + BELOW, 0, size)
assert libc.sigaltstack(ctypes.byref(stack), None) == 0

def deep(depth):
    if depth:
        deep(depth - 1)
    else:
        spend(0.3)

deep(50)
written = memory.raw.lstrip(bytes([MARK]))
used = len(written)
print(used, max(0, used - size), libc.getauxval(AT_MINSIGSTKSZ))
"""
)


def run(
    size: int, interpreter: Interpreter, folder: Path, *options: str
) -> tuple[int, int, int, float, float]:
    """Returns what the program prints, and the seconds that its time samples stand for, and those that were lost."""
    (folder / "app.py").write_text(PROGRAM)
    words = ["run", "-q", "-f", "--cpu", *options, "-o", "out.nthb", "app.py", str(size)]
    done = interpreter.nthbyte(*words, folder=folder).ok()
    used, below, kernel = map(int, done.out.split())
    time = summary(folder / "out.nthb")["time"]
    spent = sum(row["total_samples"] for row in time["rows"] if row["name"] == "spend")
    return used, below, kernel, spent / time["hz"], time["lost"] / time["hz"]


@pytest.mark.parametrize("options", [(), ("--native-frames",)], ids=["", "native"])
def test_a_tick_needs_no_more_than_the_handler_asks_for(
    options: tuple[str, ...], interpreter: Interpreter, tmp_path: Path
) -> None:
    if interpreter.is_pypy and options:
        pytest.skip("PyPy has no native frames")
    used, _, kernel, spent, lost = run(1 << 16, interpreter, tmp_path, *options)
    assert used > 0 and spent + lost >= 0.2
    assert used - kernel <= room(interpreter)
    # A stack that has just so much is enough.
    _, below, _, spent, lost = run(kernel + room(interpreter) + 1024, interpreter, tmp_path, *options)
    assert below == 0 and spent > lost


def test_nothing_below_a_small_stack_is_written(interpreter: Interpreter, tmp_path: Path) -> None:
    _, below, kernel, spent, lost = run(4096, interpreter, tmp_path)
    assert below == 0
    if kernel + room(interpreter) > 4096:
        assert lost > 0.2 and spent == 0


# Allocates on a stack of its own, and says how much of it was used.
LIBRARY = r"""
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { SIZE = 1 << 18, MARK = 0xA5 };
static ucontext_t caller, callee;
static int kind;
static void *(*take)(size_t);
static void (*give)(void *);

static void allocate(void) {
    for (int turn = 0; turn < 300; turn++) {
        if (kind == 0) {
            give(take(40));
            give(take(2000));
            give(take(200000));
        } else if (kind == 1) {
            free(realloc(malloc(1000), 100000));
            free(calloc(10, 1000));
        } else {
            munmap(mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1 << 20);
        }
    }
}

long used(int wanted) {
    static unsigned char stack[SIZE];
    take = dlsym(RTLD_DEFAULT, "PyObject_Malloc");
    give = dlsym(RTLD_DEFAULT, "PyObject_Free");
    memset(stack, MARK, SIZE);
    kind = wanted;
    getcontext(&callee);
    callee.uc_stack.ss_sp = stack;
    callee.uc_stack.ss_size = SIZE;
    callee.uc_link = &caller;
    makecontext(&callee, allocate, 0);
    swapcontext(&caller, &callee);
    long untouched = 0;
    while (stack[untouched] == MARK) untouched++;
    return SIZE - untouched;
}
"""

SAMPLES = """
import ctypes, sys
library = getattr(ctypes, "PyDLL", ctypes.CDLL)("./libstack.so")
library.used.restype = ctypes.c_long
for kind in sys.argv[1:]:
    print(max(library.used(int(kind)) for _ in range(5)))
"""

OBJECT, MALLOC, MMAP = 0, 1, 2
# What the guide says, in bytes.
OF_AN_OBJECT, OF_NATIVE_MEMORY = 3 << 10, 5 << 10


@pytest.mark.parametrize("options", [(), ("--native-frames",)], ids=["", "native"])
def test_a_sample_needs_no_more_than_the_guide_says(
    options: tuple[str, ...], interpreter: Interpreter, tmp_path: Path
) -> None:
    if interpreter.is_pypy and options:
        pytest.skip("PyPy has no native frames")
    kinds = {MALLOC: OF_NATIVE_MEMORY, MMAP: OF_NATIVE_MEMORY}
    if not interpreter.is_pypy:
        kinds[OBJECT] = OF_AN_OBJECT
    (tmp_path / "stack.c").write_text(LIBRARY)
    compile_it = ["cc", "-O1", "-shared", "-fPIC", "-o", "libstack.so", "stack.c", "-ldl"]
    subprocess.run(compile_it, cwd=tmp_path, check=True)
    (tmp_path / "app.py").write_text(SAMPLES)
    words = ["run", "-q", "-f", "--native", "--every", "64", *options, "-o", "out.nthb", "app.py", *kinds]
    done = interpreter.nthbyte(*map(str, words), folder=tmp_path).ok()
    for (kind, stated), used in zip(kinds.items(), map(int, done.out.split()), strict=True):
        assert used <= stated, (kind, used)
