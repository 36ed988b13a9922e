"""The frames of native code in time samples: ``nthbyte run --cpu --native-frames``.

The programs use up CPU time by a thread's own clock, so what share of the samples a function has does not depend on the
machine or its load. Bounds are six standard deviations of the binomial: less than one run in 10**8 is outside.
"""

from __future__ import annotations

import base64
import gzip
import re
import shutil
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

from harness import Interpreter, report, summary
from shares import check_share, together

from .collapsed import Stacks, collapsed, is_within
from .test_frames import MAPPINGS, mappings_at_first
from .test_frames import libraries as libraries

GAP = "(native frames not known)"

HEADER = """
import ctypes, sys, threading, time
chains = ctypes.CDLL("./libchains.so")
for name, types in {
    "spend": [ctypes.c_double] * 2,
    "descend": [ctypes.c_int, ctypes.c_double, ctypes.c_void_p],
    "spend_in_thread": [ctypes.c_double],
    "spend_in_handler": [ctypes.c_double],
    "call": [ctypes.c_void_p],
}.items():
    getattr(chains, "chains_" + name).argtypes = types
    getattr(chains, "chains_" + name).restype = None
callback = ctypes.CFUNCTYPE(None)

def spend(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        for _ in range(100):
            pass
"""


def _run(
    interpreter: Interpreter,
    libraries: Path,
    folder: Path,
    program: str,
    every: str = "1TiB",
    has_native: bool = True,
) -> Any:
    """Runs a program with native frames in time samples. Returns the figures of its time samples."""
    if not (folder / "libchains.so").exists():
        shutil.copy(libraries / "libchains.so", folder)
    (folder / "app.py").write_text(HEADER + program)
    options = ["--native-frames"] if has_native else []
    words = ["run", "-q", "--cpu", *options, "--every", every, "-f", "-o", "out.nthb", "app.py"]
    interpreter.nthbyte(*words, folder=folder).ok()
    return summary(folder / "out.nthb", "--top", "0")["time"]


def _of(stacks: Stacks, *names: str) -> int:
    """The samples whose stacks have these names in this order."""
    return sum(number for stack, number in stacks.items() if is_within(stack, *names))


def _those(stacks: Stacks, name: str) -> Stacks:
    """The stacks that have this name."""
    return Counter({stack: number for stack, number in stacks.items() if name in stack})


def _gaps(stacks: Stacks) -> list[tuple[str, ...]]:
    """The stacks with unknown native frames. In the dynamic linker, what called it to bind a function is not known."""
    linker = ("_dl_", "ld-linux")
    return [
        stack for stack in stacks if GAP in stack and not any(frame.startswith(linker) for frame in stack)
    ]


def test_functions_of_c_have_their_shares(cpython: Interpreter, libraries: Path, tmp_path: Path) -> None:
    program = """
def work():
    for _ in range(20): chains.chains_spend(0.015, 0.045)
work()
"""
    time = _run(cpython, libraries, tmp_path, program)
    stacks = collapsed(tmp_path)
    light, heavy = (_of(stacks, "work", "chains_spend", f"chains::{name}") for name in ("light", "heavy"))
    check_share(light, 0.25, light + heavy, together=together(tmp_path / "out.nthb"))
    # Nearly every sample of the Python function is in them, down to the function at work.
    assert light + heavy >= 0.95 * _of(stacks, "work")
    assert _of(stacks, "chains::spend") == light + heavy
    assert sum(stacks.values()) == time["samples"]
    # Before, in the import of ctypes, a sample may hit anything.
    assert not _gaps(_those(stacks, "work"))
    own = {stack[-1] for stack in stacks if "chains::spend" in stack}
    assert "chains::spend" in own, own
    # The samples stand for the time that was used.
    whole = 1.2 * time["hz"]
    assert abs(_of(stacks, "work") + time["lost"] - whole) <= 0.1 * whole + 3


def test_a_cancelled_thread_ends_where_it_would(
    cpython: Interpreter, libraries: Path, tmp_path: Path
) -> None:
    program = """
chains.chains_spend_cancelled.argtypes = [ctypes.c_double]
assert [chains.chains_spend_cancelled(0.3) for _ in range(2)] == [1, 1]
"""
    time = _run(cpython, libraries, tmp_path, program)
    whole = 0.6 * time["hz"]
    assert abs(_of(collapsed(tmp_path), "chains::light") + time["lost"] - whole) <= 0.1 * whole + 3


def test_the_python_stacks_are_the_same(cpython: Interpreter, libraries: Path, tmp_path: Path) -> None:
    """Without the native frames, the shares are as in a profile without native frames."""
    program = """
@callback
def inner(): spend(0.3)
def middle(): chains.chains_call(inner)
def outer():
    spend(0.1)
    middle()
sorted([1], key=lambda _: outer())
"""
    found = {}
    for has_native in (True, False):
        time = _run(cpython, libraries, tmp_path, program, has_native=has_native)
        rows = {row["name"]: row["total_samples"] for row in time["rows"] if "app.py" in row["file"]}
        several = together(tmp_path / "out.nthb")
        check_share(rows["inner"], 0.75, rows["outer"], together=several, lost=time["lost"])
        # A signal or two hit the way there.
        assert rows["inner"] <= rows["middle"] <= rows["inner"] + 3 * several
        assert rows["middle"] <= rows["outer"] <= rows["<lambda>"] <= rows["<module>"]
        assert rows["<lambda>"] <= rows["outer"] + 3 * several
        whole = 0.4 * time["hz"]
        assert abs(rows["outer"] + time["lost"] - whole) <= 0.1 * whole + 3
        found[has_native] = set(rows)
    # No Python function is there twice, or is missing.
    assert found[True] == found[False] == {"inner", "middle", "outer", "<module>", "<lambda>", "spend"}


def test_frames_are_in_the_order_of_their_calls(
    cpython: Interpreter, libraries: Path, tmp_path: Path
) -> None:
    program = """
def innermost(): chains.chains_spend(0.3, 0)
@callback
def middle(): innermost()
def outermost(): chains.chains_call(middle)
outermost()
thread = threading.Thread(target=outermost)
thread.start(); thread.join()
"""
    time = _run(cpython, libraries, tmp_path, program)
    stacks = collapsed(tmp_path)
    order = (
        "outermost",
        "chains_call",
        "middle",
        "innermost",
        "chains_spend",
        "chains::light",
        "chains::spend",
    )
    spent = _of(stacks, "chains::spend")
    assert spent == _of(stacks, *order)
    thread = _of(stacks, "Thread.run", *order)
    # On a busy machine, a thread is found late.
    check_share(thread, 0.5, spent, together=together(tmp_path / "out.nthb"), lost=time["lost"])
    for stack in stacks:
        if "chains::spend" in stack:
            # What runs Python code is shown as the Python code that it runs.
            assert "_PyEval_EvalFrameDefault" not in stack
            assert not any("libnthbyte" in frame for frame in stack), stack
            assert [frame for frame in stack if frame in order] == list(order)


def test_the_standard_library(cpython: Interpreter, libraries: Path, tmp_path: Path) -> None:
    """Time in an extension of the interpreter's is below the line that calls it."""
    program = """
import hashlib, zlib
def compressing():
    zlib.compress(data, 6)
def hashing():
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 30_000)
data = bytes(range(256)) * 400 + "".join(map(str, range(60_000))).encode()
for work in (compressing, hashing):
    end = time.thread_time() + 0.4
    while time.thread_time() < end: work()
"""
    _run(cpython, libraries, tmp_path, program)
    collapsed(tmp_path)
    for line, library in (("compressing", "libz.so"), ("hashing", "libcrypto.so")):
        inside, outside = 0, Counter[str]()
        for stack in (tmp_path / "out.txt").read_text().splitlines():
            frames, _, number = stack.rpartition(" ")
            _, found, inner = frames.partition(f";{line} (")
            if library in inner:
                inside += int(number)
            elif found:
                outside[inner] += int(number)
        # It is 99.9 %; but where a virtual machine waits for memory, what copies the result takes long.
        assert inside > outside.total() + 3, (line, inside, outside)


def test_threads_that_python_does_not_know(cpython: Interpreter, libraries: Path, tmp_path: Path) -> None:
    time = _run(cpython, libraries, tmp_path, "chains.chains_spend_in_thread(0.4)")
    stacks = collapsed(tmp_path)
    spent = _of(stacks, "chains::light", "chains::spend")
    assert spent + time["lost"] >= 0.8 * 0.4 * time["hz"], (spent, time)
    assert _of(stacks, "<module>", "chains::spend") == 0
    assert not _gaps(_those(stacks, "chains::spend"))


def test_deep_stacks_say_what_is_missing(cpython: Interpreter, libraries: Path, tmp_path: Path) -> None:
    """Of a deep stack, the innermost native frames are there, all Python frames, and a note between them."""
    program = """
def inside(): chains.chains_spend(0.3, 0)
def deep(): chains.chains_descend(3000, 0, ctypes.cast(callback_inside, ctypes.c_void_p))
def deepest(): chains.chains_descend(3000, 0.3, None)
def recursive(n):
    if n: recursive(n - 1)
    else: deepest()
def outermost():
    deep()
    recursive(100)
callback_inside = callback(inside)
outermost()
thread = threading.Thread(target=outermost)
threading.stack_size(16 << 20)
thread.start(); thread.join()
"""
    time = _run(cpython, libraries, tmp_path, program)
    stacks = collapsed(tmp_path)
    deep = ("outermost", "deep", GAP, "chains::descend", "inside")
    deepest = ("outermost", *["recursive"] * 101, "deepest", GAP, "chains::descend")
    several = together(tmp_path / "out.nthb")
    for order, function in ((deep, "inside"), (deepest, "deepest")):
        found = _of(stacks, *order, "chains::spend")
        assert found == _of(stacks, function, "chains::spend") > 0
        # A signal or two hit the way there.
        assert _of(stacks, function) <= found + 3 * several
    threads = _of(stacks, "Thread.run", GAP, "chains::spend")
    check_share(threads, 0.5, _of(stacks, "chains::spend"), together=several, lost=time["lost"])
    for stack in stacks:
        # All but the outermost frames are not far from the innermost 64 KiB.
        assert stack.count("chains::descend") < 600
        assert stack.count(GAP) <= 1


def test_a_handler_on_a_stack_of_its_own(cpython: Interpreter, libraries: Path, tmp_path: Path) -> None:
    program = """
def work(): chains.chains_spend_in_handler(0.3)
work()
thread = threading.Thread(target=work)
thread.start(); thread.join()
"""
    _run(cpython, libraries, tmp_path, program)
    stacks = collapsed(tmp_path)
    spent = _of(stacks, "chains::spend")
    assert spent == _of(stacks, "work", "chains::handler", "chains::spend") > 0
    assert spent == _of(stacks, "<module>", "chains::spend") + _of(stacks, "Thread.run", "chains::spend")
    # What lies between is not known, and that is said. A sample may hit the handler itself.
    assert spent == _of(stacks, "work", GAP, "chains::handler", "chains::spend")


def test_libraries_that_are_not_known_yet(cpython: Interpreter, libraries: Path, tmp_path: Path) -> None:
    """The samples in a new library wait until it is known, and are neither lost nor cut."""
    program = f"""
import _ctypes, shutil
{MAPPINGS}
def load(name):
    shutil.copy("libchains.so", name)
    return ctypes.CDLL(name)
def work(library): library.chains_spend(ctypes.c_double(0.1), ctypes.c_double(0))
for number in range(6):
    library = load(f"./lib{{number}}.so")
    work(library)
    # A code object that is freed has all ticks recorded.
    exec("def freed(): pass")
    # Until the writer thread has looked at the library.
    while mappings(f"lib{{number}}.so") == LOADED: time.sleep(0.01)
    _ctypes.dlclose(library._handle)
    del library
"""
    program = program.replace("LOADED", str(mappings_at_first(cpython, libraries, tmp_path)))
    time = _run(cpython, libraries, tmp_path, program)
    stacks = collapsed(tmp_path)
    spent = _of(stacks, "work", "chains_spend", "chains::light", "chains::spend")
    assert spent + time["lost"] >= 0.8 * 0.6 * time["hz"]
    # Samples outside of the library are on the way to it.
    assert spent >= 0.9 * _of(stacks, "work") > 0


def test_a_session_that_ends_before_its_libraries_are_known(
    cpython: Interpreter, libraries: Path, tmp_path: Path
) -> None:
    program = """
import nthbyte, shutil
def work(library): library.chains_spend(ctypes.c_double(0.013), ctypes.c_double(0))
for number in range(30):
    name = f"./lib{number}.so"
    shutil.copy("libchains.so", name)
    with nthbyte.Profiler(f"out{number}.nthb", every="1TiB", cpu=True, native_frames=True):
        work(ctypes.CDLL(name))
"""
    shutil.copy(libraries / "libchains.so", tmp_path)
    (tmp_path / "app.py").write_text(HEADER + program)
    cpython.python("app.py", folder=tmp_path).ok()
    spent = whole = 0
    for number in range(30):
        if summary(tmp_path / f"out{number}.nthb")["time"]["samples"]:
            stacks = collapsed(tmp_path, name=f"out{number}.nthb")
            spent += _of(stacks, "work", "chains_spend", "chains::light")
            whole += _of(stacks, "work")
    assert spent >= 0.9 * whole > 0


def test_nthbyte_is_left_out(cpython: Interpreter, libraries: Path, tmp_path: Path) -> None:
    """Its allocator is busy here."""
    program = """
end = time.thread_time() + 0.6
while time.thread_time() < end:
    [bytearray(n) for n in range(200)]
"""
    _run(cpython, libraries, tmp_path, program, every="16KiB")
    rows = summary(tmp_path / "out.nthb", "--top", "0")["time"]["rows"]
    assert len(rows) > 5
    assert not [row for row in rows if "libnthbyte" in row["file"]]


def test_a_child_has_native_frames(cpython: Interpreter, libraries: Path, tmp_path: Path) -> None:
    program = """
import os
def parent(): chains.chains_spend(0.3, 0)
def child(): chains.chains_spend(0, 0.3)
pid = os.fork()
if pid == 0:
    keep = ["x" * n for n in range(5000)]
    child()
    raise SystemExit
parent()
assert os.waitpid(pid, 0)[1] == 0
open("pid", "w").write(str(pid))
"""
    _run(cpython, libraries, tmp_path, program, every="16KiB")
    pid = (tmp_path / "pid").read_text()
    for name, function, inside, not_inside in (
        ("out.nthb", "parent", "light", "heavy"),
        (f"out.{pid}.nthb", "child", "heavy", "light"),
    ):
        rows = summary(tmp_path / name, "--top", "0")["time"]["rows"]
        counts = Counter({row["name"]: row["total_samples"] for row in rows})
        assert counts[f"chains::{inside}"] >= 0.9 * counts[function] > 3
        # It is called too, for no time: a signal may hit it.
        assert counts[f"chains::{not_inside}"] <= 0.1 * counts[function]


def test_the_collector(cpython: Interpreter, libraries: Path, tmp_path: Path) -> None:
    """Its functions are below the frame of the collection, and finalizers below them."""
    program = """
import gc
gc.disable()
keep = [[] for _ in range(200_000)]
class Dying:
    def __del__(self): chains.chains_spend(0.002, 0)
def collect():
    dying = [Dying() for _ in range(3)]
    for one in dying: one.self = one
    del dying, one
    gc.collect()
end = time.thread_time() + 0.6
while time.thread_time() < end: collect()
"""
    _run(cpython, libraries, tmp_path, program)
    stacks = collapsed(tmp_path)
    collector = "collection of generation 2"
    assert (
        _of(stacks, "collect", collector, "Dying.__del__", "chains::spend")
        == _of(stacks, "chains::spend")
        > 0
    )
    for stack in stacks:
        if collector in stack:
            assert stack[: stack.index(collector)].count("collect") == 1
    assert _of(stacks, collector) >= 0.9 * _of(stacks, "collect")


def _inflated(content: bytes) -> bytes:
    """The content of raw deflate; nothing of anything else."""
    try:
        return zlib.decompress(content, wbits=-15)
    except zlib.error:
        return b""


def test_reports_and_exports(cpython: Interpreter, libraries: Path, tmp_path: Path) -> None:
    _run(cpython, libraries, tmp_path, "def work(): chains.chains_spend(0.3, 0.3)\nwork()")
    for command in ("summary", "tree"):
        # All rows: on a slow machine, each function of the start may have a sample of its own, and comes first.
        words = [command, "--time", "--top", "0"]
        shown = report(*words, "out.nthb", folder=tmp_path).ok().out
        assert "chains::heavy" in shown, shown
    for kind, name in (("pprof", "out.pb.gz"), ("firefox", "out.json"), ("speedscope", "out.speedscope")):
        report("export", "out.nthb", "--to", kind, "-f", "-o", name, folder=tmp_path).ok()
        content = (tmp_path / name).read_bytes()
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        assert b"chains::heavy" in content, kind
    report("flamegraph", "out.nthb", "-o", "out.html", folder=tmp_path).ok()
    # The data of the page are compressed.
    texts = re.findall(rb"[A-Za-z0-9+/=]{200,}", (tmp_path / "out.html").read_bytes())
    data = [base64.b64decode(text) for text in texts if len(text) % 4 == 0]
    assert any(b"chains::heavy" in content for content in map(_inflated, data))
