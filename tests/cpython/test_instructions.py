"""What nthbyte costs, in instructions: one sample, one refill, one collection, one start.

Valgrind counts them, so the counts do not depend on the machine's speed or load.
``crates/heap/tests/instructions.rs`` counts the fast paths'. A bound is 5 to 15 percent above the count at the time
when it was set. Where a change is worth more, raise the bound, and say why.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness import SCRIPT, run, samples

# With a period of 4 KiB, 20 frames deep, and strings of 1000 bytes that are dropped at once.
MOST_FOR_A_SAMPLE = 2_000
MOST_FOR_A_REFILL = 232
# What a sample reads inside of a label: 53 of them walk through the context's map, 49 are there without labels, too.
MOST_FOR_A_LABEL = 145
# A request of `PyMem_Malloc` above the heap's limit that is not sampled, and its free: the heap's part of both.
MOST_FOR_A_FALLBACK = 52
# A request of the interpreter between 512 bytes and the limit of the heap, with the check of the caller.
MOST_FOR_A_MEDIUM = 90
# A collection of few objects: both calls of the callback, without the collector's own preparation of them.
# It takes 2,370, and 2,410 on a busy machine.
MOST_FOR_A_COLLECTION = 2_500
# A start of `nthbyte run` and its end, without Python's. Most of it is the import of our modules.
MOST_FOR_A_START = 15_500_000

# Work that is not done at each sample, but a few times a second, or at the start.
NOT_OF_A_SAMPLE = re.compile(
    "resident|memory|wake|statistics|collapse|writer|nthbyte_heap|holds_gil|segments|maps::|host_images"
)

PROGRAM = """
def work(times, size):
    for _ in range(times):
        "x" * size

def deep(depth):
    work(10_000, 1000) if depth == 0 else deep(depth - 1)

deep(20)
kept = [[number] for number in range(20_000)]
"""

# The items of each list have 8 bytes, in the domain MEM.
LISTS = """
for _ in range(20_000):
    [None] * {}
"""

COLLECTIONS = """
import gc
for _ in range(3000):
    gc.collect(0)
"""

pytestmark = pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")


@dataclass
class Counts:
    """Instructions and calls by function, of the main thread."""

    own: Counter[str] = field(default_factory=Counter)
    """Without the functions that it calls."""
    with_callees: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)


def read(path: Path) -> Counts:
    """Reads the file of Valgrind's tool callgrind."""
    counts, names = Counts(), dict[str, str]()
    function = callee = ""
    is_call = False
    for line in path.read_text().splitlines():
        if match := re.match(r"(c?fn)=(\(\d+\)) ?(.*)", line):
            kind, number, name = match.groups()
            if name:
                names[number] = name
            if kind == "fn":
                function = names[number]
            else:
                callee = names[number]
        elif line.startswith("calls="):
            counts.calls[callee] += int(line[6:].split()[0])
            is_call = True
        elif match := re.match(r"[-+*\d]\S* (\d+)$", line):
            counts.with_callees[function] += int(match[1])
            if not is_call:
                counts.own[function] += int(match[1])
            is_call = False
    return counts


def count(folder: Path, *words: str | Path) -> Counts:
    """Runs Python with these words, and counts."""
    out = folder / "counts"
    tool = ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={out}"]
    environment = {"PYTHONHASHSEED": "0", "PYTHONPYCACHEPREFIX": ""}
    run([*tool, sys.executable, *map(str, words)], folder, environment=environment).ok()
    return read(Path(f"{out}-01"))


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Counts, int]:
    """The counts of a program with many samples, and the number of samples."""
    folder = tmp_path_factory.mktemp("sampled")
    (folder / "app.py").write_text(PROGRAM)
    counts = count(folder, SCRIPT, "run", "-q", "--seed=1", "--every=4KiB", "-o", "out.nthb", "app.py")
    return counts, samples(folder / "out.nthb")


def test_a_sample(sampled: tuple[Counts, int]) -> None:
    counts, taken = sampled
    assert taken > 2000
    ours = {
        name: instructions
        for name, instructions in counts.own.items()
        if re.match("nthbyte_(cpython|session|sampling)", name) and not NOT_OF_A_SAMPLE.search(name)
    }
    assert any("sampled" in name for name in ours)
    assert sum(ours.values()) / taken < MOST_FOR_A_SAMPLE, Counter(ours).most_common(10)


def test_a_label(tmp_path: Path) -> None:
    labelled = "import nthbyte\nwith nthbyte.label(endpoint='/checkout'):\n    deep(20)"
    (tmp_path / "app.py").write_text(PROGRAM.replace("deep(20)", labelled))
    counts = count(tmp_path, SCRIPT, "run", "-q", "--seed=1", "--every=4KiB", "-o", "out.nthb", "app.py")
    read_by_a_sample = r"nthbyte_cpython::labels::(of_thread|with_task|reader|hamt|tasks::of_thread)"
    ours = Counter({name: own for name, own in counts.own.items() if re.match(read_by_a_sample, name)})
    assert any("hamt" in name for name in ours)
    assert 100 < sum(ours.values()) / samples(tmp_path / "out.nthb") < MOST_FOR_A_LABEL, ours


def test_a_refill(sampled: tuple[Counts, int]) -> None:
    counts, _ = sampled
    (refill,) = (name for name in counts.calls if re.fullmatch(r"nthbyte_heap::refill::.*::refill", name))
    assert counts.calls[refill] > 500
    assert counts.with_callees[refill] / counts.calls[refill] < MOST_FOR_A_REFILL


def test_a_collection(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(COLLECTIONS)
    counts = count(tmp_path, SCRIPT, "run", "-q", "--seed=1", "--every=1MiB", "-o", "out.nthb", "app.py")
    (callback,) = (name for name in counts.calls if name.endswith("gc_callbacks::on_collection"))
    collections = counts.calls[callback] / 2
    assert collections >= 3000
    assert counts.with_callees[callback] / collections < MOST_FOR_A_COLLECTION


def test_a_request_that_a_fallback_serves(tmp_path: Path) -> None:
    counts = count_lists(tmp_path, 400)
    heap = Counter({name: own for name, own in counts.own.items() if re.match("nthbyte_heap::large", name)})
    requests = counts.calls["nthbyte_heap::large::malloc"]
    assert requests > 20_000
    assert sum(heap.values()) / requests < MOST_FOR_A_FALLBACK, heap.most_common(6)
    # The check for the GIL, which CPython 3.11 needs, is for samples only.
    checks = sum(calls for name, calls in counts.calls.items() if "holds_gil" in name)
    assert checks < requests / 20, checks


def test_a_request_of_the_interpreter(tmp_path: Path) -> None:
    counts = count_lists(tmp_path, 200)
    assert counts.calls["nthbyte_heap::large::malloc"] < 5000
    (check,) = (name for name in counts.calls if "own_requests::is_own" in name)
    requests = counts.calls[check]
    assert requests > 20_000
    ours = Counter(
        {name: own for name, own in counts.own.items() if re.search("malloc_medium|own_requests", name)}
    )
    assert sum(ours.values()) / requests < MOST_FOR_A_MEDIUM, ours


def count_lists(folder: Path, length: int) -> Counts:
    (folder / "app.py").write_text(LISTS.format(length))
    return count(folder, SCRIPT, "run", "-q", "--no-native", "--every=1TiB", "-o", "out.nthb", "app.py")


def test_a_start(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("")
    plain = sum(count(tmp_path, "app.py").own.values())
    # The end waits for the system to remove the writer thread: on a busy machine, that takes instructions too.
    words = (SCRIPT, "run", "-q", "-f", "-o", "out.nthb", "app.py")
    profiled = min(sum(count(tmp_path, *words).own.values()) for _ in range(3))
    assert plain < profiled < plain + MOST_FOR_A_START, f"{profiled - plain:,}"
