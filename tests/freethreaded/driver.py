"""Programs that load the driver of `crates/mimalloc/examples/cut_lists.rs`, and how they run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness import Interpreter

DRIVER = """
import ctypes, gc, json, os, sys, threading

driver = ctypes.PyDLL(sys.argv[1])
driver.install.restype = driver.verify_with.restype = ctypes.c_char_p
driver.start.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
driver.set_period.argtypes = [ctypes.c_uint64]
driver.fuzz.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p]
driver.fuzz.restype = driver.alive.restype = ctypes.c_uint64
driver.verify_with.argtypes = [ctypes.c_size_t, ctypes.c_ssize_t]
driver.spin.argtypes = [ctypes.c_uint64, ctypes.c_size_t, ctypes.c_size_t]

NAMES = "allocations bytes samples lost estimate seen wrong displaced pages records free".split()

def install():
    answer = driver.install().decode()
    assert answer == "fine", answer

def totals():
    words = (ctypes.c_uint64 * len(NAMES))()
    driver.totals(words)
    return dict(zip(NAMES, words))

class Slots:
    __slots__ = "a", "b", "c"

class Node:
    def __init__(self, i):
        self.i, self.me, self.data = i, self, [i, str(i)]

def run(threads):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

def work(rounds):
    # All four heaps, resizes, cycles.
    keep = []
    for i in range(rounds):
        keep.append((Node(i), float(i) * 1.5, b"x" * (i % 1500), "ab" * (i % 300)))
        if i % 3 == 0:
            keep.append({j: [j] for j in range(i % 20)})
        if len(keep) > 1000:
            del keep[::2]
        s = [k for k in range(i % 50)]
        s.extend(range(100))
        keep.append(set(s))
"""


def check(threaded: Interpreter, cut_lists: Path, folder: Path, program: str, *arguments: Any) -> Any:
    """Runs a program after the driver, and returns the JSON that it prints last."""
    (folder / "app.py").write_text(DRIVER + program)
    words = [str(word) for word in arguments]
    done = threaded.python("-X", "faulthandler", "app.py", cut_lists, *words, folder=folder).ok()
    assert "wrong" not in done.err, done.err[-2000:]
    return json.loads(done.out.splitlines()[-1])
