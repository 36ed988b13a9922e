"""The agents for ARM64, in Debian's interpreters for it, which an emulator runs (`qemu-aarch64`).

They are built by `make test-emulated`, with the profile of the demo. The command for this processor reads the profiles.
What an emulator cannot show is in docs/guide/limits.md.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from harness import REPOSITORY, SPEND, Done, firefox, is_near, run, summary

FOLDER = REPOSITORY / "build" / "emulated"
TREE = FOLDER / "arm64"
SITE = FOLDER / "site"

CPYTHONS = ["python3.13", "python3.14", "python3.15"]

# As on x86-64, and one more at most, to form an address.
MOST_INSTRUCTIONS = {"malloc": 12, "free": 15}


def emulated(python: str, *words: str | Path, folder: Path) -> Done:
    """Runs an interpreter of the tree, with nthbyte."""
    command = ["qemu-aarch64", "-L", str(TREE), str(TREE / "usr" / "bin" / python), *map(str, words)]
    return run(command, folder, environment={"PYTHONPATH": str(SITE)})


KNOWN = """
import threading

class Node:
    def __init__(self, number):
        self.name = "n" * 450 + str(number)

def nodes(count):
    return [Node(number) for number in range(count)]

def blobs(count):
    return [b"b" * 3000 + b"%d" % number for number in range(count)]

kept = nodes(4000)
thread = threading.Thread(target=lambda: kept.append(blobs(1000)), name="worker")
thread.start()
thread.join()
print(len(kept))
"""


@pytest.mark.parametrize("python", CPYTHONS)
def test_a_known_program(python: str, tmp_path: Path) -> None:
    """Functions, types, threads and lifetimes of objects that stay."""
    (tmp_path / "program.py").write_text(KNOWN)
    done = emulated(
        python, "-m", "nthbyte", "run", "--every", "4KiB", "-o", "out.nthb", "program.py", folder=tmp_path
    ).ok()
    assert done.out == "4001\n"
    profile = tmp_path / "out.nthb"
    rows = {row["name"]: row for row in summary(profile, "--by", "function")["rows"]}
    own = {
        name: next(row for full, row in rows.items() if name in full) for name in ("Node.__init__", "blobs")
    }
    # 4,000 strings of 450 bytes and a header, and 1,000 bytes objects of 3,000; of each also some small ones.
    assert is_near(own["Node.__init__"]["self_bytes"], 4000 * 500)
    assert is_near(own["blobs"]["self_bytes"], 1000 * 3060)
    types = {row["name"]: row for row in summary(profile, "--by", "type", "--at", "end")["rows"]}
    assert is_near(types["bytes"]["alive"], 1000 * 3037)
    assert any(thread["name"].endswith("worker") for thread in firefox(profile)["threads"])


@pytest.mark.parametrize("python", CPYTHONS)
def test_time_samples(python: str, tmp_path: Path) -> None:
    """The function that uses most of the CPU time has most of the samples, by the stack at the signal."""
    program = (
        SPEND
        + """
def most():
    spend(1.5)

def least():
    spend(0.3)

most()
least()
"""
    )
    (tmp_path / "program.py").write_text(program)
    emulated(python, "-m", "nthbyte", "run", "--cpu", "-o", "out.nthb", "program.py", folder=tmp_path).ok()
    rows = {row["name"]: row for row in summary(tmp_path / "out.nthb", "--time")["time"]["rows"]}
    most, least = (rows[name]["total_time"]["estimate"] for name in ("most", "least"))
    assert most > 2 * least > 0


def test_native_memory_is_refused_in_words(tmp_path: Path) -> None:
    words = ["-m", "nthbyte", "run", "-o", "out.nthb", "-c", "print(1)"]
    done = emulated("python3.14", *words, folder=tmp_path).ok()
    assert "native memory was not recorded: nthbyte records it on x86-64 only, not on aarch64" in done.err
    refused = emulated("python3.14", *words[:3], "--native-frames", *words[3:], folder=tmp_path)
    assert refused.status == 1 and refused.out == ""
    assert refused.err.count("\n") == 1 and "on x86-64 only" in refused.err
    program = emulated("python3.14", *words[:5], "--", str(TREE / "usr/bin/ls"), folder=tmp_path)
    assert program.status == 2 and "is built for AArch64" in program.err


def test_pypy_is_sampled_at_its_collections(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("kept = [[number] for number in range(1_000_000)]\nprint(len(kept))")
    done = emulated("pypy3", "-m", "nthbyte", "run", "-o", "out.nthb", "program.py", folder=tmp_path).ok()
    assert done.out == "1000000\n"
    assert "PyPy cannot be hooked on this processor" in done.err
    assert summary(tmp_path / "out.nthb")["samples"] > 0


def test_children_and_parts_of_a_run(tmp_path: Path) -> None:
    program = """
import os, nthbyte
with nthbyte.Profiler("own.nthb", every="4KiB"):
    kept = ["x" * 1000 + str(number) for number in range(1000)]
    child = os.fork()
    if not child:
        more = ["y" * 2000 + str(number) for number in range(1000)]
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
print("end")
"""
    (tmp_path / "program.py").write_text(program)
    assert emulated("python3.14", "program.py", folder=tmp_path).ok().out == "end\n"
    children = sorted(tmp_path.glob("own.*.nthb"))
    assert len(children) == 1
    for profile, size in (tmp_path / "own.nthb", 1000), (children[0], 2000):
        rows = {row["name"]: row for row in summary(profile, "--by", "type")["rows"]}
        assert is_near(rows["str"]["self_bytes"], 1000 * (size + 52))


@pytest.mark.parametrize("name", MOST_INSTRUCTIONS)
@pytest.mark.parametrize("domain", ["obj", "mem"])
def test_the_fast_path_is_short(domain: str, name: str) -> None:
    library = SITE / "nthbyte" / "libnthbyte_cpython.so"
    path = fast_path(library, f"nthbyte_heap_{domain}_{name}")
    assert len(path) <= MOST_INSTRUCTIONS[name], "\n".join(path)


def fast_path(library: Path, symbol: str) -> list[str]:
    """The instructions of a function from its entry to its return. Branches are taken where not to is the slow path.

    The slow path is a jump out of the function. Raises an error where a path cannot be followed, as at a call.
    """
    words = [
        "aarch64-linux-gnu-objdump",
        "--disassemble",
        "--no-show-raw-insn",
        f"--disassemble={symbol}",
        library,
    ]
    listing = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    lines = re.findall(r"^ +([0-9a-f]+):\t([\w.]+)(?:\t([^<\n/]*))?", listing, re.M)
    code = {int(address, 16): (mnemonic, operands.strip()) for address, mnemonic, operands in lines}
    path, at = [], min(code)
    while True:
        mnemonic, operands = code[at]
        path.append(f"{mnemonic} {operands}".strip())
        if mnemonic == "ret":
            return path
        target = operands.split()[-1] if mnemonic[0] in "bct" else ""
        if re.fullmatch(r"b\.\w+|cbn?z|tbn?z", mnemonic):
            taken = int(target, 16)
            is_slow_otherwise = code[at + 4][0] == "b"
            at = taken if is_slow_otherwise else at + 4
        else:
            assert mnemonic not in ("b", "bl", "br", "blr"), path
            at += 4
