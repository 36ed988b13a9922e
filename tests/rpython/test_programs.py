"""``nthbyte run -- ./program`` on programs that were translated with RPython."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import SITE, Done, Interpreter, rows_so_far, summary

INTERPRETER = Interpreter(sys.executable)
GCBENCH = Path(__file__).parent / "programs" / "gcbench.lisp"
Find = Callable[[str], Path]

LOOPS = 20_000_000
SIZE = 16
# RPython's own start allocates less than this.
MOST_AT_START = 128 * 1024


def _record(folder: Path, *words: str | Path, **options: Any) -> Done:
    done = INTERPRETER.nthbyte("run", "-f", "-o", "out.nthb", *words, folder=folder, **options)
    assert done.status == 0, done.err
    return done


def _start(words: list[str], folder: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(SITE)}
    return subprocess.Popen(INTERPRETER.words(words, folder), cwd=folder, env=environment)


def _rows(folder: Path, *options: str) -> dict[str, Any]:
    found = summary(folder / "out.nthb", "--domain", "python", "--top", "100", *options)
    return {row["name"]: row for row in found["rows"]}


@pytest.mark.parametrize("period", [4096, 65_536, 1 << 20, 16 << 20])
@pytest.mark.parametrize("name", ["allocate_alot", "allocate_alot.stripped"])
def test_samples_are_as_predicted(translated: Find, name: str, period: int, tmp_path: Path) -> None:
    program = translated(name)
    plain = subprocess.run([program, str(LOOPS)], capture_output=True, text=True, check=True)
    done = _record(tmp_path, "--fixed", "--every", str(period), "--", program, str(LOOPS))
    assert re.sub(r"0x\w+|[0-9.]+", "", done.out) == re.sub(r"0x\w+|[0-9.]+", "", plain.stdout)
    found = summary(tmp_path / "out.nthb", "--domain", "python")
    points = found["all"]["bytes"]["estimate"] / period
    least = LOOPS * SIZE // period
    assert least <= points <= least + MOST_AT_START // period + 1
    assert "RPython" in found["interpreter"]
    types = _rows(tmp_path, "--by", "type")
    # One of them, the loop's, has nearly all bytes: objects of 16 bytes.
    loop = max(types.values(), key=lambda row: row["self_bytes"]["estimate"])
    assert loop["name"].startswith("type 0x")
    assert loop["self_bytes"]["estimate"] / loop["allocations"]["estimate"] == pytest.approx(SIZE)
    if name == "allocate_alot":
        functions = _rows(tmp_path)
        assert functions["pypy_g_run"]["self_bytes"]["estimate"] >= (least - 1) * period


def test_only_the_first_instructions_of_few_functions_change(translated: Find, tmp_path: Path) -> None:
    """The loop executes the same code, whether it is sampled or not."""
    program = translated("allocate_alot")
    address, size, offset = _code_of(program)
    before = program.read_bytes()[offset : offset + size]
    words = ["-m", "nthbyte", "run", "-f", "-q", "-o", "out.nthb", "--", str(program), str(10**12)]
    running = _start(words, tmp_path)
    try:
        # The hooks are in place before the program's main function begins.
        until = time.monotonic() + 60
        while (now := _code_now(running.pid, program, address, size)) in (None, before):
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        running.kill()
        running.wait()
    changed = {at & ~15 for at in range(size) if now[at] != before[at]}
    # The slow path, both collections, and what allocates the nursery: each begins at a multiple of 16.
    assert len(changed) == 4
    symbols = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    names = {int(line.split()[0], 16): line.split()[2] for line in symbols.splitlines() if line[:1] == "0"}
    hooked = {names[address + at].removeprefix("pypy_g_IncrementalMiniMarkGC_") for at in changed}
    assert hooked == {"collect_and_reserve", "_minor_collection", "major_collection_step", "allocate_nursery"}


def _code_of(program: Path) -> tuple[int, int, int]:
    """The address, the size and the place in the file of the executable segment."""
    text = subprocess.run(["readelf", "-lW", program], capture_output=True, text=True, check=True).stdout
    [line] = [line for line in text.splitlines() if " LOAD " in line and " R E " in line]
    words = line.split()
    return int(words[2], 16), int(words[4], 16), int(words[1], 16)


def _code_now(pid: int, program: Path, address: int, size: int) -> bytes | None:
    """The code of the process, once it is the program."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if line.endswith(str(program)):
            base = int(line.split("-")[0], 16)
            with open(f"/proc/{pid}/mem", "rb") as memory:
                memory.seek(base + address)
                return memory.read(size)
    return None


def test_an_interpreter_with_survivors(translated: Find, tmp_path: Path) -> None:
    program = translated("tiny_lisp")
    plain = subprocess.run([program, GCBENCH], capture_output=True, text=True, check=True)
    environment = {"PYPY_GC_NURSERY": "1M"}
    done = _record(tmp_path, "--every", "4KiB", "--", program, GCBENCH, environment=environment)
    assert done.out == plain.stdout
    found = summary(tmp_path / "out.nthb", "--domain", "python")
    # The long-lived tree has 2 ** 14 - 1 pairs of 24 bytes.
    tree = (2**14 - 1) * 24
    assert tree / 2 < found["all"]["survived"]["estimate"] < found["all"]["bytes"]["estimate"] / 3
    rows = _rows(tmp_path)
    assert {"pypy_g_Operation_eval", "pypy_g_Call_eval"} <= rows.keys()
    assert rows["pypy_g_main"]["total_bytes"]["estimate"] > 0.9 * found["all"]["bytes"]["estimate"]


def test_children_and_ends(translated: Find, tmp_path: Path) -> None:
    program = translated("allocate_alot")
    # Ended by a signal: what was sampled is there.
    words = ["-m", "nthbyte", "run", "-f", "-q", "-o", "out.nthb", "--", str(program), str(10**12)]
    running = _start(words, tmp_path)
    try:
        until = time.monotonic() + 60
        while not rows_so_far(tmp_path / "out.nthb"):
            assert time.monotonic() < until
            time.sleep(0.1)
    finally:
        running.send_signal(signal.SIGTERM)
    assert running.wait() == -signal.SIGTERM
    assert "pypy_g_run" in _rows(tmp_path)
    # With the smallest nursery, each allocation is a collection.
    environment = {"PYPY_GC_NURSERY": "1"}
    done = _record(tmp_path, "--fixed", "--every", "4KiB", "--", program, "100000", environment=environment)
    assert "GB/s" in done.out
    found = summary(tmp_path / "out.nthb", "--domain", "python")
    points = found["all"]["bytes"]["estimate"] / 4096
    least = 100_000 * SIZE // 4096
    assert least <= points <= least + MOST_AT_START // 4096


def test_an_unknown_collector_is_refused(translated: Find, tmp_path: Path) -> None:
    """Where the code is not as expected, one line says so, and native memory is recorded."""
    program = Path(shutil.copy(translated("allocate_alot"), tmp_path / "program"))
    address, _, offset = _code_of(program)
    symbols = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    [reserve] = [line.split()[0] for line in symbols.splitlines() if line.endswith("GC_collect_and_reserve")]
    at = int(reserve, 16) - address + offset
    data = bytearray(program.read_bytes())
    # `ret`: the program does not reach it.
    data[at] = 0xC3
    program.write_bytes(data)
    done = _record(tmp_path, "--every", "1KiB", "--", program, "1000")
    assert "objects of this RPython program are not sampled" in done.err
    assert len(done.err.splitlines()) == 2
    assert "GB/s" in done.out
    found = summary(tmp_path / "out.nthb")
    assert "RPython" not in found["interpreter"]
    refused = INTERPRETER.nthbyte("run", "--fixed", "--", program, "1000", folder=tmp_path)
    assert refused.status == 1
    assert "not sampled" in refused.err
