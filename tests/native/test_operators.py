"""C++'s ``operator new`` and ``operator delete``, with allocators that bring their own; and the functions of C."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import Interpreter, is_near, run, summary

from .conftest import LIBRARY, PROGRAMS, skip_without

INTERPRETER = Interpreter(sys.executable)


@pytest.fixture
def allocator(preload: str) -> str:
    """The file of an allocator that is preloaded; empty for the C library's."""
    return preload.removeprefix(str(LIBRARY)).removeprefix(":")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Has the programs, bound at the start or at the first calls, and the library."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    folder = tmp_path_factory.mktemp("operators")
    flags = [
        "-O1",
        "-g",
        "-std=c++17",
        "-fsized-deallocation",
        "-Wall",
        "-Werror",
        "-Wl,--build-id",
        "-pthread",
    ]
    for name, more, source in (
        ("now", ["-Wl,-z,now"], "operators.cpp"),
        ("lazy", ["-Wl,-z,lazy"], "operators.cpp"),
        ("plug.so", ["-shared", "-fPIC", "-Wl,-z,lazy"], "operators.cpp"),
        ("deleted now", ["-Wl,-z,now"], "deleted.cpp"),
        ("deleted lazy", ["-Wl,-z,lazy"], "deleted.cpp"),
    ):
        subprocess.run([compiler, *flags, *more, "-o", folder / name, PROGRAMS / source], check=True)
    c_flags = [flag for flag in flags if flag not in ("-std=c++17", "-fsized-deallocation")]
    for binding in ("now", "lazy"):
        words = [*c_flags, f"-Wl,-z,{binding}", "-o", folder / f"sized {binding}", "-x", "c"]
        subprocess.run([compiler, *words, PROGRAMS / "sized.c"], check=True)
    return folder


def _check(found: Any, out: str, *, exactly: bool) -> None:
    rows = {row["name"]: row for row in found["rows"]}
    # On a busy machine samples are lost, and counted.
    lost = found["lost"]
    lines = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert lines.pop("refused", "3") == "3"
    assert len(lines) == 13
    for name, figures in lines.items():
        calls, size, left = map(int, figures.split())
        row = rows[name]
        for what, truth in (("allocations", calls), ("total_bytes", size), ("alive", left)):
            figure = row[what]
            if exactly:
                each = 1 if what == "allocations" else 20_480
                assert abs(figure["estimate"] - truth) <= lost * each, (name, what)
            else:
                assert is_near(figure, truth), (name, what)


@pytest.mark.parametrize("binding", ["now", "lazy"])
@pytest.mark.parametrize("every", ["1", "64K"])
def test_each_request_of_a_program_counts_once(
    every: str, binding: str, allocator: str, folder: Path, tmp_path: Path
) -> None:
    program = [str(folder / binding), *(["no refusal"] if "mimalloc" in allocator else [])]
    environment = {"LD_PRELOAD": allocator}
    plain = run(program, tmp_path, environment=environment)
    words = ["run", "-o", "out.nthb", "--every", every, "--", *program]
    done = INTERPRETER.nthbyte(*words, folder=tmp_path, environment=environment).ok()
    assert done.out == plain.out
    options = ("--domain", "native", "--top", "1000")
    found = summary(tmp_path / "out.nthb", *options)
    _check(found, done.out, exactly=every == "1")
    types = {row["name"] for row in summary(tmp_path / "out.nthb", *options, "--by", "type")["rows"]}
    assert ("operator new" in types) == bool(allocator)


@pytest.mark.parametrize("binding", ["now", "lazy"])
def test_each_deleted_block_is_freed(binding: str, allocator: str, folder: Path, tmp_path: Path) -> None:
    """Also if ``delete`` and ``free`` are one function of the allocator. No later request takes a place of one."""
    words = ["run", "-o", "out.nthb", "--every", "64K", "--", folder / f"deleted {binding}"]
    done = INTERPRETER.nthbyte(*words, folder=tmp_path, environment={"LD_PRELOAD": allocator}).ok()
    assert done.out == "deleted\n"
    found = summary(tmp_path / "out.nthb", "--domain", "native")
    [made] = [row for row in found["rows"] if row["name"] == "make"]
    assert made["total_bytes"]["estimate"] > 20_000_000
    assert made["alive"]["estimate"] == 0


@pytest.mark.parametrize("binding", ["now", "lazy"])
@pytest.mark.parametrize(
    ("library", "function"),
    [
        ("libjemalloc.so.2", "sdallocx"),
        ("libjemalloc.so.2", "dallocx"),
        ("libtcmalloc_minimal.so.4", "tc_free_sized"),
    ],
)
def test_blocks_that_are_freed_with_their_size(
    library: str, function: str, binding: str, folder: Path, tmp_path: Path
) -> None:
    """The allocator believes the size, so a sampled block has no more room than another one. The free is noticed."""
    skip_without(library)
    program = [str(folder / f"sized {binding}"), function]
    environment = {"LD_PRELOAD": library}
    plain = run(program, tmp_path, environment=environment).ok()
    # The shortest period with which sampled blocks of other allocators begin at the start of a page.
    words = ["run", "-o", "out.nthb", "--every", "16K", "--", *program]
    done = INTERPRETER.nthbyte(*words, folder=tmp_path, environment=environment).ok()
    assert done.out == plain.out
    said = dict(line.split() for line in done.out.splitlines())
    assert said["differ"] == "0"
    [made] = [
        row for row in summary(tmp_path / "out.nthb", "--domain", "native")["rows"] if row["name"] == "make"
    ]
    assert is_near(made["alive"], int(said["stay"]))


def test_a_library_that_python_loads(allocator: str, folder: Path, tmp_path: Path) -> None:
    """Nothing of nthbyte is preloaded: the slots of the library are changed when its function is looked up.

    On a busy machine, all samples may wait until the library is looked at. So there are fewer than the 4,096 that may.
    """
    (tmp_path / "app.py").write_text("import ctypes, sys\nctypes.CDLL(sys.argv[1]).plug(int(sys.argv[2]))\n")
    words = ["run", "-o", "out.nthb", "--every", "64K", "--native-frames", "app.py", folder / "plug.so"]
    words.append(str(int("mimalloc" not in allocator)))
    done = INTERPRETER.nthbyte(*words, folder=tmp_path, environment={"LD_PRELOAD": allocator}).ok()
    found = summary(tmp_path / "out.nthb", "--domain", "native", "--top", "10000")
    _check(found, done.out, exactly=False)


@pytest.mark.parametrize("every", ["1", "1M"])
def test_each_function_counts_once(
    every: str, allocator: str, compiled: Callable[[str], Path], tmp_path: Path
) -> None:
    """Also if an allocator passes it on to another one of them, and if a mapping grows that was not sampled.

    With a period of 1 MiB there are so few samples that the ring has room for all, however late they are written.
    """
    words = ["run", "-o", "out.nthb", "--every", every, "--", compiled("functions")]
    done = INTERPRETER.nthbyte(*words, folder=tmp_path, environment={"LD_PRELOAD": allocator}).ok()
    found = summary(tmp_path / "out.nthb", "--domain", "native", "--top", "1000")
    rows = {row["name"]: row for row in found["rows"]}
    assert len(done.out.splitlines()) == 11
    for line in done.out.splitlines():
        name, *truths = line.split()
        for figure, truth in zip(("total_bytes", "alive"), map(int, truths), strict=True):
            if every == "1":
                # On a busy machine samples are lost, and counted.
                assert abs(rows[name][figure]["estimate"] - truth) <= found["lost"] * 1_024_000, name
            else:
                assert is_near(rows[name][figure], truth), (name, figure)
