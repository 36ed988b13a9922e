"""What the resident set is made of, on programs whose memory is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness import Interpreter, report
from seccomp import refusing

MIB = 1 << 20

# The end of each program: it rests, so that its last composition is of what it keeps.
REST = """
import time
time.sleep(0.3)
"""


def memory(profile: Path, *options: str) -> Any:
    """Returns the report, with the rows by key."""
    report_ = json.loads(report("memory", "--json", *options, profile, folder=profile.parent).ok().out)
    rows = {row["key"]: row["bytes"] for row in report_["rows"]}
    assert sum(row["estimate"] for row in rows.values()) == pytest.approx(report_["rss"], abs=2)
    assert all(row["low"] <= row["estimate"] <= row["high"] for row in rows.values())
    report_["rows"] = {key: row["estimate"] for key, row in rows.items()}
    return report_


def run(interpreter: Interpreter, folder: Path, program: str, *options: str) -> Path:
    """Runs a program and returns its profile."""
    (folder / "app.py").write_text(program + REST)
    profile = folder / "out.nthb"
    words = ["run", "--every", "16K", "-q", *options, "-o", profile, "app.py"]
    interpreter.nthbyte(*words, folder=folder).ok()
    return profile


def test_large_and_small_blocks(cpython: Interpreter, tmp_path: Path) -> None:
    program = "large = bytearray(b'x') * (60 << 20)\nsmall = [[n] for n in range(300_000)]\n"
    found = memory(run(cpython, tmp_path, program), "--at", "end")
    rows = found["rows"]
    # The list's items are a large block too.
    assert rows["large"] == pytest.approx(60 * MIB + 2.5 * MIB, rel=0.05)
    # Lists with their items; and the numbers.
    each = 56 + 8 + 16 + 28
    assert rows["objects"] == pytest.approx(300_000 * each, rel=0.25)
    assert rows["slack"] < 0.2 * rows["objects"]
    assert rows.get("unknown", 0) <= 0.03 * found["rss"]
    assert 0 < rows["agent"] < 8 * MIB
    assert rows["file_text"] > 0


@pytest.mark.parametrize(("size", "row"), [(900, "objects"), (1900, "objects"), (2100, "large")])
def test_objects_of_up_to_2032_bytes_are_in_the_heap(
    size: int, row: str, cpython: Interpreter, tmp_path: Path
) -> None:
    """What the heap serves is the same in all versions."""
    number = 20 * MIB // size
    found = memory(
        run(cpython, tmp_path, f"kept = [bytes({size}) for n in range({number})]\n"), "--at", "end"
    )
    [other] = {"objects", "large"} - {row}
    # An interpreter has some megabytes of its own.
    assert found["rows"][row] == pytest.approx(number * (size + 33), abs=4 * MIB)
    assert found["rows"][other] < 5 * MIB


LATE = """
kept = [bytes(3000) for n in range(5000)]
import nthbyte
nthbyte.start("out.nthb", force=True, every="4KiB")
for number in range(15000):
    kept[number % 5000] = bytes(3000)
nthbyte.stop()
"""


def test_blocks_of_a_late_session_are_in_place_of_earlier_ones(cpython: Interpreter, tmp_path: Path) -> None:
    """The C library has as much in use as when the session began, but other blocks."""
    (tmp_path / "app.py").write_text(LATE)
    cpython.python("app.py", folder=tmp_path).ok()
    rows = memory(tmp_path / "out.nthb", "--at", "end")["rows"]
    assert rows["large"] == pytest.approx(5000 * 3033, rel=0.08)
    assert rows["before"] < 8 * MIB


def test_free_blocks_and_who_holds_them(cpython: Interpreter, tmp_path: Path) -> None:
    program = """
def hold(number):
    return (number, None, number)

def fill():
    kept, others = [], []
    for number in range(400_000):
        if number % 200 == 0:
            kept.append(hold(-7))
        else:
            others.append((-7, None, number))
    return kept

kept = fill()
"""
    found = memory(run(cpython, tmp_path, program, "--every", "1K"), "--at", "end")
    rows, holders = found["rows"], found["holders"]
    # The tuples that were freed, 64 or 80 bytes each.
    assert holders["free"] > 10 * MIB
    assert rows["free_blocks"] > 10 * MIB
    assert holders["sparse_free"] > 0.5 * holders["free"]
    assert rows.get("unknown", 0) <= 0.03 * found["rss"]
    named = [holder["place"]["function"] for holder in holders["holders"]]
    assert {"hold", "fill"} & set(named[:2]), named
    assert sum(holder["free"]["estimate"] for holder in holders["holders"]) <= 1.01 * holders["free"]


NATIVE = """
import ctypes, mmap
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
large = libc.malloc(40 << 20)
libc.memset(large, 1, 40 << 20)
small = [libc.malloc(1000) for _ in range(10_000)]
for block in small:
    libc.memset(block, 1, 1000)
mapping = mmap.mmap(-1, 30 << 20, flags=mmap.MAP_PRIVATE)
mapping.write(b"x" * (30 << 20))
"""


def test_native_blocks_and_mappings(cpython: Interpreter, tmp_path: Path) -> None:
    found = memory(run(cpython, tmp_path, NATIVE), "--at", "end")
    rows = found["rows"]
    assert rows["native"] == pytest.approx(40 * MIB + 10_000 * 1000, rel=0.1)
    assert rows["mappings"] == pytest.approx(30 * MIB, rel=0.05)
    assert rows.get("unknown", 0) <= 0.03 * found["rss"]
    # Without samples of native memory, the mapping is unknown.
    found = memory(run(cpython, tmp_path, NATIVE, "--no-native", "-f"), "--at", "end")
    assert found["rows"]["unknown"] == pytest.approx(30 * MIB, rel=0.1)
    assert any("was not sampled" in note for note in found["notes"])


def test_the_peak_and_the_end(cpython: Interpreter, tmp_path: Path) -> None:
    program = "import time\nkept = bytearray(b'x') * (80 << 20)\ntime.sleep({})\ndel kept\n"
    # On a slow machine the first readings, of a block that is not full yet, use the time that readings may take for
    # many seconds. One is of the whole block only if it stays long enough.
    for seconds in (3, 12, 48):
        profile = run(cpython, tmp_path, program.format(seconds), "-f")
        peak, end = memory(profile), memory(profile, "--at", "end")
        if peak["rss"] - end["rss"] > 78 * MIB:
            break
    assert peak["at"] == "peak" and end["at"] == "end"
    # Nothing else grows.
    large = [moment["rows"].get("large", 0) for moment in (peak, end)]
    assert large[0] - large[1] == pytest.approx(peak["rss"] - end["rss"], abs=4 * MIB)
    assert 8 * MIB < large[0] < 84 * MIB
    assert large[1] < 4 * MIB
    assert peak["at_nanos"] < end["at_nanos"]
    python = memory_of_domain(profile, "python")
    assert {row["group"] for row in python["rows"]} <= {"Python, live", "Python, free"}
    assert {row["group"] for row in memory_of_domain(profile, "native")["rows"]} <= {"native"}
    text = report("memory", profile, folder=tmp_path).ok().out
    # Whether a reading meets the moment of the peak is a matter of time.
    assert "live large blocks" in text
    assert "of RSS at its peak" in text or "of RSS in the largest reading" in text


def memory_of_domain(profile: Path, domain: str) -> Any:
    """Returns the report of one domain."""
    words = ["memory", "--json", "--domain", domain, profile]
    return json.loads(report(*words, folder=profile.parent).ok().out)


PROCESS_VM_READV = 310


def test_a_heap_that_may_not_be_read_is_said(cpython: Interpreter, tmp_path: Path) -> None:
    profile = tmp_path / "out.nthb"
    program = "kept = [[n] for n in range(200_000)]\n" + REST
    words = ["run", "--every", "16K", "-q", "-o", str(profile), "-c", program]
    cpython.python(*refusing(PROCESS_VM_READV), "-m", "nthbyte", *words, folder=tmp_path).ok()
    found = memory(profile, "--at", "end")
    assert "objects" not in found["rows"] and found["rows"]["unknown"] > 10 * MIB
    [note] = [note for note in found["notes"] if "heap could not be read" in note]
    assert "process_vm_readv" in note
    assert "process_vm_readv" in report("memory", profile, folder=tmp_path).ok().out


def test_pypy(pypy: Interpreter, tmp_path: Path) -> None:
    program = "kept = [[n] for n in range(400_000)]\n"
    program += "large = bytearray(40 << 20)\nlarge[::4096] = b'x' * len(large[::4096])\n"
    program += "for turn in range(40):\n    junk = [[n] for n in range(20_000)]\n"
    found = memory(run(pypy, tmp_path, program), "--at", "end")
    rows = found["rows"]
    if any("totals were not found" in note for note in found["notes"]):
        # PyPy 8.0 with a small nursery: its words for the totals cannot be told apart.
        assert rows["native"] > 40 * MIB
        return
    assert rows["objects"] > 2 * MIB
    assert rows["large"] >= 40 * MIB
    assert rows["nursery"] > 0
    assert rows.get("unknown", 0) <= 0.05 * found["rss"]


def test_what_chooses_allocations_is_refused_in_words(cpython: Interpreter, tmp_path: Path) -> None:
    """The kernel counts for the whole process: a user who narrows another report in this way gets no parser's error."""
    profile = run(cpython, tmp_path, "")
    for words in (["--thread", "a"], ["--where", "a"], ["--label", "a=b"], ["--by", "label:a"]):
        refused = report("memory", *words, profile, folder=tmp_path)
        assert refused.status == 1
        assert refused.err.startswith(f"nthbyte: {words[0]}: memory shows what the kernel counts"), (
            refused.err
        )
