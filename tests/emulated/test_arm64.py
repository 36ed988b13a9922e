"""The agents for ARM64, in Debian's interpreters for it, which an emulator runs (`qemu-aarch64`).

They are built by `make test-emulated`, with the profile of the demo: all of them with NTHBYTE_EVERY_INTERPRETER=1.
The command for this processor reads the profiles.
What an emulator cannot show is in docs/compatibility.md.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness import IS_ALL, REPOSITORY, SPEND, Done, firefox, is_near, run, summary
from native.collapsed import collapsed, is_within

FOLDER = REPOSITORY / "build" / "emulated"
TREE = FOLDER / "arm64"
SITE = FOLDER / ("site" if IS_ALL else "some")
# Python with the compiler that `make test-emulated` links the agents with.
ZIG = REPOSITORY / "build" / "release" / "tools" / "bin" / "python"

CPYTHONS = ["python3.13", "python3.14", "python3.15"]

# As on x86-64, and one more at most, to form an address.
MOST_INSTRUCTIONS = {"malloc": 12, "free": 15}
# Of the functions that stand before the C library's.
MOST_NATIVE_INSTRUCTIONS = {"malloc": 10, "calloc": 13, "free": 8}


def emulated(python: str, *words: str | Path, folder: Path, emulator: Sequence[str] = ()) -> Done:
    """Runs an interpreter of the tree, with nthbyte, and with these options of the emulator."""
    interpreter = [str(TREE), str(TREE / "usr" / "bin" / python)]
    command = ["qemu-aarch64", *emulator, "-L", *interpreter, *map(str, words)]
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


@pytest.mark.parametrize("python", [*CPYTHONS, "pypy3"])
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


WORK = """
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

__attribute__((noinline)) char *inner(size_t size) {
    char *volatile block = malloc(size);
    return block;
}

__attribute__((noinline)) int outer(int count, size_t size, char **blocks) {
    for (int at = 0; at < count; at++)
        blocks[at] = inner(size);
    return count;
}

__attribute__((noinline)) int freed(int count, size_t size) {
    for (int at = 0; at < count; at++) {
        char *volatile block = calloc(1, size);
        block = realloc(block, 2 * size);
        free(block);
    }
    return count;
}

__attribute__((noinline)) char *mapped(size_t size) {
    char *place = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(place, 1, size);
    return place;
}

char *blocks[2000];

int main(void) {
    return outer(2000, 30000, blocks) + freed(1000, 20000) + !mapped(10 << 20) - 3000;
}
"""


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a program and a library for ARM64, which sign their return addresses as Debian's packages do."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "work.c").write_text(WORK)
    compiler = [
        ZIG,
        "-m",
        "ziglang",
        "cc",
        "-target",
        "aarch64-linux-gnu.2.17",
        "-O1",
        "-g",
        "-Wl,--build-id",
    ]
    compiler += ["-mbranch-protection=standard"]
    for words in (["-o", "work"], ["-shared", "-fPIC", "-o", "libwork.so"]):
        subprocess.run([*compiler, *words, "work.c"], cwd=folder, check=True)
    return folder


def _check_work(profile: Path, outside: str) -> None:
    """Compares what was recorded of the functions above, which ``outside`` has called, with what they ask for."""
    rows = {row["name"]: row for row in summary(profile, "--domain", "native", "--top", "500")["rows"]}
    for name, size in ("outer", 60_000_000), ("freed", 60_000_000), ("mapped", 10 << 20):
        assert is_near(rows[name]["total_bytes"], size), (name, rows[name])
    assert is_near(rows["inner"]["self_bytes"], 60_000_000)
    at_end = {row["name"]: row for row in summary(profile, "--domain", "native", "--at", "end")["rows"]}
    assert is_near(at_end["inner"]["alive"], 60_000_000)
    assert "freed" not in at_end or at_end["freed"]["alive"]["estimate"] == 0
    stacks = collapsed(profile.parent, "--domain", "native", name=profile.name)
    for names in (outside, "outer", "inner"), (outside, "freed"), (outside, "mapped"):
        assert any(is_within(stack, *names) and stack[-1] == names[-1] for stack in stacks), (names, stacks)


@pytest.mark.parametrize("python", CPYTHONS)
def test_native_memory(python: str, work: Path, tmp_path: Path) -> None:
    """Functions of a library under Python's, by import slots that are changed while the program runs."""
    program = f"""
import ctypes
work = ctypes.CDLL({str(work / "libwork.so")!r})
def calls():
    work.main()
calls()
"""
    (tmp_path / "program.py").write_text(program)
    words = ["-m", "nthbyte", "run", "--native-frames", "--every", "16KiB", "-o", "out.nthb", "program.py"]
    emulated(python, *words, folder=tmp_path).ok()
    _check_work(tmp_path / "out.nthb", "calls")


@pytest.mark.parametrize("size", [16 << 10, 64 << 10])
def test_pages_of_another_size(size: int, work: Path, tmp_path: Path) -> None:
    """Objects and native memory where the system's pages are larger, as on some systems for ARM64."""
    program = f"""
import ctypes, mmap
work = ctypes.CDLL({str(work / "libwork.so")!r})
blocks = (ctypes.c_void_p * 2000)()
def calls():
    work.outer(2000, ctypes.c_size_t(30_000), blocks)
    work.freed(1000, ctypes.c_size_t(20_000))
calls()
def texts():
    return ["t" * 1000 + str(number) for number in range(10_000)]
kept = texts()
del kept[::2]
print(mmap.PAGESIZE)
"""
    (tmp_path / "program.py").write_text(program)
    # With pages of another size, qemu 7.2 loses track of mappings: its instructions for vectors (SVE) and its list of
    # mappings are wrong, and `mincore` writes an answer for each page of the machine, too many. So there are no frames
    # of libraries, and no mappings so large that nthbyte asks what of them is in memory.
    emulator = ["-cpu", "max,sve=off", "-p", str(size)]
    words = ["-m", "nthbyte", "run", "--native", "--every", "16KiB", "-o", "out.nthb", "program.py"]
    done = emulated("python3.14", *words, folder=tmp_path, emulator=emulator).ok()
    assert done.out == f"{size}\n"
    profile = tmp_path / "out.nthb"
    [native] = [row for row in summary(profile, "--domain", "native")["rows"] if row["name"] == "calls"]
    assert is_near(native["self_bytes"], 120_000_000)
    assert is_near(native["alive"], 60_000_000)
    types = {row["name"]: row for row in summary(profile, "--by", "type")["rows"]}
    assert is_near(types["str"]["self_bytes"], 10_000 * 1052)
    assert is_near(types["str"]["alive"], 5_000 * 1052)


def launched(program: Path, folder: Path) -> list[str]:
    """What `nthbyte run -- PROGRAM` becomes. An emulator does not run other programs: its caller does."""
    shown = f"""
import json, os, runpy, sys
def execve(path, words, environment):
    print(json.dumps([os.fsdecode(word) for word in (path, *words[1:])]))
    sys.stdout.flush()
    os._exit(0)
os.execve = execve
sys.argv = ["nthbyte", "run", "--every", "16KiB", "-o", "out.nthb", "--", {str(program)!r}]
runpy.run_module("nthbyte", run_name="__main__")
"""
    words: list[str] = json.loads(emulated("python3.14", "-c", shown, folder=folder).ok().out)
    return words


def test_a_program_without_python(work: Path, tmp_path: Path) -> None:
    words = launched(work / "work", tmp_path)
    settings = json.loads(words[words.index("--settings") + 1])
    # As the command passes them on.
    del settings["closed"]
    given = json.dumps({**settings, "preload": None})
    folder = words[words.index("--folder") + 1]
    libraries = ":".join(f"{folder}/libnthbyte_{name}.so" for name in ("native", "program"))
    # The emulator itself preloads nothing.
    done = run(
        ["qemu-aarch64", "-L", str(TREE), "-E", f"LD_PRELOAD={libraries}", str(work / "work")],
        tmp_path,
        environment={"NTHBYTE_PROGRAM": given},
    ).ok()
    assert "samples; see it with: nthbyte explain out.nthb" in done.err
    _check_work(tmp_path / "out.nthb", "main")


def test_a_program_for_another_processor_is_refused(tmp_path: Path) -> None:
    shutil.copy("/bin/true", tmp_path / "other")
    refused = run(["qemu-aarch64", "-L", str(TREE), *launched(tmp_path / "other", tmp_path)], tmp_path)
    assert refused.status == 2 and refused.err.count("\n") == 1
    assert "is built for x86-64: nthbyte profiles native programs for AArch64 here" in refused.err


def test_objects_of_pypy(tmp_path: Path) -> None:
    """Those in the nursery, and large ones, which a changed call of `malloc` shows."""
    program = """
import gc

class Node:
    def __init__(self, number):
        self.number = number

def nodes(count):
    return [Node(number) for number in range(count)]

def texts(count):
    return [b"t" * 1000 + b"%d" % (1000 + number) for number in range(count)]

def large(count):
    return [bytes(1_000_000) for _ in range(count)]

kept = nodes(20_000), texts(2000), large(5)
gc.collect()
print(len(kept))
"""
    (tmp_path / "program.py").write_text(program)
    words = ["-m", "nthbyte", "run", "--every", "4KiB", "-o", "out.nthb", "program.py"]
    done = emulated("pypy3", *words, folder=tmp_path).ok()
    assert done.out == "3\n"
    assert "cannot" not in done.err
    profile = tmp_path / "out.nthb"
    recorded = summary(profile, "--by", "function", "--top", "500")
    assert recorded["method"] == "nursery-limit" and not recorded["notes"]
    rows = {row["name"]: row for row in recorded["rows"]}
    # 5 bytes objects of 1,000,000, and 2,000 of 1,000 which are made of another one.
    assert is_near(rows["large"]["total_bytes"], 5_000_000)
    assert is_near(rows["texts"]["total_bytes"], 2 * 2000 * 1030)
    types = {row["name"]: row for row in summary(profile, "--by", "type", "--top", "500")["rows"]}
    assert is_near(types["text or bytes"]["survivors"], 5_000_000 + 2000 * 1030)
    assert types["Node"]["self_bytes"]["estimate"] > 0
    # The functions that begin and end the compiler's work were found, and collections.
    assert recorded["collections"]["count"] > 0


@pytest.mark.parametrize("python", ["python3.14", "pypy3"])
def test_a_prepared_process_is_attached_to(python: str, tmp_path: Path) -> None:
    """By the wheel's own command: the emulator changes the names of sockets, in the same way for both."""
    program = """
import nthbyte
nthbyte.ready()
print("here", flush=True)
input()
kept = [str(number) * 50 for number in range(20_000)]
print("worked", flush=True)
input()
"""
    (tmp_path / "program.py").write_text(program)
    emulator = ["qemu-aarch64", "-L", str(TREE)]
    command = [*emulator, str(SITE / "nthbyte" / "bin" / "nthbyte")]
    process = subprocess.Popen(
        [*emulator, str(TREE / "usr" / "bin" / python), "program.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SITE)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "here\n"
        pid = str(process.pid)
        # With the method of any process, one line says what to do.
        other = run([*command, "attach", pid, "--method", "ptrace"], tmp_path)
        assert other.status == 1 and "NTHBYTE=ready" in other.err and other.err.count("\n") == 1
        with subprocess.Popen(
            [*command, "attach", pid, "-o", "a.nthb"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
        ) as attached:
            assert attached.stderr and "recording process" in attached.stderr.readline()
            process.stdin.write("go on\n")
            process.stdin.flush()
            assert process.stdout.readline() == "worked\n"
            ended = run([*command, "detach", pid], tmp_path).ok()
            assert "samples; see it with: nthbyte explain a.nthb" in ended.err
        assert attached.returncode == 0
        process.communicate("end\n")
    assert process.returncode == 0
    assert "program.py" in str(summary(tmp_path / "a.nthb", "--by", "function")["rows"])


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


@pytest.mark.parametrize("name", MOST_NATIVE_INSTRUCTIONS)
def test_the_fast_path_of_native_memory_is_short(name: str) -> None:
    """From the entry to the jump to the C library's function."""
    path = fast_path(SITE / "nthbyte" / "libnthbyte_native.so", name)
    assert path[-1] == "br x16"
    assert len(path) <= MOST_NATIVE_INSTRUCTIONS[name], "\n".join(path)


@pytest.mark.parametrize("name", MOST_INSTRUCTIONS)
@pytest.mark.parametrize("domain", ["obj", "mem"])
def test_the_fast_path_is_short(domain: str, name: str) -> None:
    library = SITE / "nthbyte" / "libnthbyte_cpython.so"
    path = fast_path(library, f"nthbyte_heap_{domain}_{name}")
    assert len(path) <= MOST_INSTRUCTIONS[name], "\n".join(path)


def fast_path(library: Path, symbol: str) -> list[str]:
    """The instructions of a function from its entry to its return, or to its jump to the C library's function.

    Branches are taken where not to is the slow path.

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
        if mnemonic == "ret" or f"{mnemonic} {operands}" == "br x16":
            return path
        target = operands.split()[-1] if mnemonic[0] in "bct" else ""
        if re.fullmatch(r"b\.\w+|cbn?z|tbn?z", mnemonic):
            taken = int(target, 16)
            is_slow_otherwise = code[at + 4][0] == "b"
            at = taken if is_slow_otherwise else at + 4
        else:
            assert mnemonic not in ("b", "bl", "br", "blr"), path
            at += 4
