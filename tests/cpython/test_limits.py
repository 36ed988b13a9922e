"""Limits of the system and of the interpreter are as without nthbyte."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Done, Interpreter, run, summary

# A program that allocates and frees blocks of all kinds, in a thread too.
PROGRAM = """
import threading
def work():
    return sum(len([[n], str(n), bytes(n)]) for n in range(3000))
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(work())
"""

# Blocks whose first words are no addresses of anything, one for each part of the address space that has a part of the
# heap's table.
NUMBERS = """
from array import array
for number in range(1 << 14):
    array("Q", [number << 33 | 16])
"""


def test_numbers_in_blocks_are_no_addresses(cpython: Interpreter, tmp_path: Path) -> None:
    """What a block holds tells its type. Where addresses are limited, most of the heap's table is not mapped."""
    if cpython.tree is not None:
        pytest.skip("the limit would hold for the tools that enter the chroot")
    profile = tmp_path / "out.nthb"
    command = ["-m", "nthbyte", "run", "-q", "--every", "1", "-o", str(profile), "-c", NUMBERS]
    shell = ["sh", "-c", 'ulimit -v 1048576; exec "$@"', "sh"]
    run([*shell, *cpython.words(command, tmp_path)], tmp_path).ok()
    assert summary(profile)["samples"] > 1 << 14


# A program that raises its limit as far as it may. Its mapping has no memory. It lies right below the others, so the
# kernel puts later ones below it: first large blocks, which are freed again, and then arenas.
FAR_MAPPINGS = """
import mmap, resource
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
NORESERVE = 0x4000
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
far = mmap.mmap(-1, 700 << 30, flags=flags, prot=mmap.PROT_READ)
for _ in range(20):
    del [bytes(300_000) for _ in range(20)][:]
print(len([object() for _ in range(1_000_000)]))
"""


@pytest.mark.parametrize("limit", ["ulimit -v 1073741824", "ulimit -S -v 8388608"])
def test_far_mappings_under_a_high_limit(limit: str, cpython: Interpreter, tmp_path: Path) -> None:
    """1 TiB, and 8 GiB that the program may raise. A part of the heap's table that is not mapped ends it (SIGSEGV)."""
    (tmp_path / "app.py").write_text(FAR_MAPPINGS)
    shell = ["sh", "-c", f'{limit} && exec "$@"', "sh"]
    plain = run([*shell, *cpython.words(["app.py"], tmp_path)], tmp_path)
    if plain.status != 0:
        pytest.skip("plain Python cannot map 700 GiB here")
    command = ["-m", "nthbyte", "run", "-q", "-o", "out.nthb", "app.py"]
    done = run([*shell, *cpython.words(command, tmp_path)], tmp_path).ok()
    assert done.out == plain.out
    assert summary(tmp_path / "out.nthb")["complete"]


@pytest.mark.parametrize("words", [["-c", "print(1)"], ["app.py"]])
def test_a_small_address_space_suffices(words: list[str], cpython: Interpreter, tmp_path: Path) -> None:
    """``ulimit -v``: 24 MiB more than plain Python needs suffice: the library has 3, its reserve 8, an arena 2, and the
    pool of small blocks 2. Native memory is recorded if there is room for it beside that, and never instead of it."""
    if cpython.tree is not None:
        pytest.skip("the limit would hold for the tools that enter the chroot")
    (tmp_path / "app.py").write_text(PROGRAM)

    def limited(kibibytes: int, *words: str) -> int:
        # Without enough addresses, plain Python 3.11 may retry an import for ever.
        shell = ["sh", "-c", f'ulimit -v {kibibytes}; ulimit -t 10; exec "$@"', "sh"]
        return run([*shell, *cpython.words([*words], tmp_path)], tmp_path).status

    sizes = range(10 << 10, 200 << 10, 2 << 10)
    plain = next(size for size in sizes if limited(size, *words) == 0)
    for more in range(24, 56, 2):
        profile = tmp_path / f"{more}.nthb"
        command = ["-m", "nthbyte", "run", "-q", "-o", str(profile), *words]
        assert limited(plain + (more << 10), *command) == 0, f"{more} MiB"
        assert summary(profile)["complete"]
    assert not any("native" in note for note in summary(profile)["notes"])


def limited(flag: str, kibibytes: int, words: list[str], interpreter: Interpreter, folder: Path) -> Done:
    # Without enough memory, plain Python 3.11 may retry an import for ever.
    shell = ["sh", "-c", f'ulimit {flag} {kibibytes}; ulimit -t 10; exec "$@"', "sh"]
    return run([*shell, *interpreter.words(words, folder)], folder)


@pytest.mark.launcher
@pytest.mark.parametrize("flag", ["-v", "-d"])
def test_too_small_a_limit_is_refused_in_one_line(
    flag: str, interpreter: Interpreter, tmp_path: Path
) -> None:
    """From what plain Python needs upwards, either the program runs, or one line says that there is no memory."""
    if interpreter.tree is not None:
        pytest.skip("the limit would hold for the tools that enter the chroot")
    words = ["-c", "print(1)"]
    nthbyte = ["-m", "nthbyte", "run", "-q", "-f", "-o", "out.nthb", *words]
    sizes = range(2 << 10, 200 << 10, 2 << 10)
    plain = next(size for size in sizes if limited(flag, size, words, interpreter, tmp_path).status == 0)
    # A little more: what runs a module (`-m`) needs that, too.
    for more in range(4, 28, 4):
        done = limited(flag, plain + (more << 10), nthbyte, interpreter, tmp_path)
        if done.status == 0:
            assert done.out == "1\n"
        elif not (interpreter.is_pypy and "\nout of memory: " in done.err):
            # Nobody can know when PyPy itself ends for want of memory. It tells of errors in what the agent runs.
            lines = [line for line in done.err.splitlines() if not line.startswith("debug: ")]
            assert done.out == "" and len(lines) == 1, f"{more} MiB: {done}"
            assert lines[0].startswith("nthbyte: ") and "limit" in lines[0], f"{more} MiB: {done}"
    assert done.status == 0


def test_what_native_memory_leaves_of_a_limit(cpython: Interpreter, tmp_path: Path) -> None:
    """``ulimit -d``: it is recorded if there is room for it beside a thread's stack, and never instead of that."""
    if cpython.tree is not None:
        pytest.skip("the limit would hold for the tools that enter the chroot")
    (tmp_path / "app.py").write_text(PROGRAM)
    sizes = range(2 << 10, 200 << 10, 2 << 10)
    plain = next(size for size in sizes if limited("-d", size, ["app.py"], cpython, tmp_path).status == 0)
    command = ["-m", "nthbyte", "run", "-q", "-f", "-o", "out.nthb", "app.py"]
    for more in range(19, 26):
        assert limited("-d", plain + (more << 10), command, cpython, tmp_path).status == 0, f"{more} MiB"


# Prints its resident set in KiB, with all of its memory locked.
LOCKED = """
import ctypes, sys
if ctypes.CDLL(None).mlockall(3) != 0:
    sys.exit(3)
kept = [bytearray(100_000) for _ in range(100)]
with open("/proc/self/status") as file:
    print(*(line.split()[1] for line in file if line.startswith("VmRSS")))
"""


def test_locked_memory_is_what_is_used(cpython: Interpreter, tmp_path: Path) -> None:
    """Reserved address space does not come into memory: the heap's table has 64 MiB, each library's reserve 8."""
    (tmp_path / "app.py").write_text(LOCKED)
    plain = run(cpython.words(["app.py"], tmp_path), tmp_path)
    if plain.status != 0:
        pytest.skip("memory cannot be locked here")
    done = cpython.nthbyte("run", "-q", "-o", "out.nthb", "app.py", folder=tmp_path).ok()
    assert int(done.out) - int(plain.out) < 16_000
