"""The frames of native code: ``nthbyte run --native-frames``."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from harness import COMMAND, Interpreter, report, run

from .collapsed import Stacks, collapsed, is_within

PROGRAMS = Path(__file__).parent / "programs"

MAPPINGS = """
def mappings(name):
    with open("/proc/self/maps") as lines: return sum(name in line for line in lines)
"""

HEADER = f"""
import ctypes, threading
{MAPPINGS}
cpp, rust = ctypes.CDLL("./libchains.so"), ctypes.CDLL("./librust.so") if RUST else None
cpp.chains_allocate.restype = ctypes.c_void_p
cpp.chains_allocate.argtypes = [ctypes.c_size_t]
callback = ctypes.CFUNCTYPE(None)
"""


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the libraries of ``programs``, made with debug information."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    folder = tmp_path_factory.mktemp("libraries")
    flags = ["-O2", "-g", "-Wall", "-Werror", "-fPIC", "-shared", "-Wl,--build-id", "-pthread"]
    subprocess.run([compiler, *flags, "-o", folder / "libchains.so", PROGRAMS / "chains.cpp"], check=True)
    if rustc := shutil.which("rustc"):
        flags = [
            "--crate-type=cdylib",
            "--crate-name=rust",
            "--edition=2024",
            "-O",
            "-g",
            "-C",
            "link-arg=-Wl,--build-id",
        ]
        subprocess.run([rustc, *flags, "-o", folder / "librust.so", PROGRAMS / "chains.rs"], check=True)
    return folder


def _copy(libraries: Path, folder: Path) -> None:
    for library in libraries.iterdir():
        if not (folder / library.name).exists():
            shutil.copy(library, folder)


def mappings_at_first(interpreter: Interpreter, libraries: Path, folder: Path) -> int:
    """Returns the number of mappings that the dynamic linker makes for libchains.so."""
    _copy(libraries, folder)
    program = HEADER.replace("RUST", "False") + "print(mappings('libchains.so'))"
    return int(interpreter.python("-c", program, folder=folder).ok().out)


def _stacks(
    interpreter: Interpreter, libraries: Path, folder: Path, program: str, every: str = "64K"
) -> Stacks:
    """Runs a program; returns the bytes of each stack, outermost frame first, by the names of functions."""
    _copy(libraries, folder)
    has_rust = (folder / "librust.so").exists()
    (folder / "app.py").write_text(HEADER.replace("RUST", str(has_rust)) + program)
    interpreter.nthbyte(
        "run", "--native-frames", "--every", every, "-f", "-o", "out.nthb", "app.py", folder=folder
    ).ok()
    return collapsed(folder, "--domain", "native")


def _share(stacks: Stacks, inside: str, *names: str) -> float:
    """The part of the bytes of a function's stacks that have these frames in this order."""
    of_function = {stack: size for stack, size in stacks.items() if inside in stack}
    assert sum(of_function.values()) > 10_000_000, stacks
    good = sum(size for stack, size in of_function.items() if is_within(stack, *names))
    return good / sum(of_function.values())


CHAIN = (
    "chains_allocate",
    "chains::deep",
    "chains::deep",
    "chains::deep",
    "chains::Store::allocate<int>",
    "chains::Store::inlined",
)


def test_frames_are_in_the_order_of_their_calls(
    cpython: Interpreter, libraries: Path, tmp_path: Path
) -> None:
    program = """
def innermost():
    for _ in range(1000): cpp.chains_allocate(40_000)
@callback
def middle(): innermost()
def outermost(): cpp.chains_call(middle)
outermost()
thread = threading.Thread(target=outermost)
thread.start(); thread.join()
"""
    stacks = _stacks(cpython, libraries, tmp_path, program)
    order = ("<module>", "outermost", "chains_call", "middle", "innermost", *CHAIN)
    threads = ("Thread.run", *order[1:])
    main = Counter({stack: size for stack, size in stacks.items() if "Thread.run" not in stack})
    others = Counter({stack: size for stack, size in stacks.items() if "Thread.run" in stack})
    assert _share(main, "innermost", *order) == 1, main
    assert _share(others, "innermost", *threads) == 1, others
    for stack in stacks:
        # What runs Python code is shown as the Python code that it runs.
        assert "_PyEval_EvalFrameDefault" not in stack
        assert not any("nthbyte" in frame for frame in stack if frame.endswith(".so")), stack


def test_rust(cpython: Interpreter, libraries: Path, tmp_path: Path) -> None:
    if not (libraries / "librust.so").exists():
        pytest.skip("there is no rustc")
    program = """
def allocate():
    for _ in range(1000): rust.rust_allocate(ctypes.c_size_t(40_000))
allocate()
"""
    stacks = _stacks(cpython, libraries, tmp_path, program)
    of_rust = [stack for stack in stacks if "rust_allocate" in stack]
    assert _share(stacks, "rust_allocate", "allocate", "rust_allocate") == 1
    for stack in of_rust:
        inner = stack[stack.index("rust_allocate") :]
        assert any("Store" in frame and frame.endswith("filled") for frame in inner), stack
        assert any("Store" in frame and frame.endswith("inlined") for frame in inner), stack
        assert not any("17h" in frame for frame in inner), stack


def test_threads_that_python_does_not_know_and_deep_stacks(
    cpython: Interpreter, libraries: Path, tmp_path: Path
) -> None:
    program = """
def deep():
    for _ in range(500): cpp.chains_deep(3000, 40_000)
def starts(): cpp.chains_thread(500, 40_000)
deep()
starts()
"""
    stacks = _stacks(cpython, libraries, tmp_path, program)
    [deep] = [stack for stack in stacks if "deep" in stack]
    # The innermost frames are kept, and all frames of Python.
    assert deep[-2:] == CHAIN[-2:]
    assert deep[: deep.index("deep") + 1][-2:] == ("<module>", "deep")
    assert 1000 < deep.count("chains::deep") < 1024
    threads = [stack for stack in stacks if "chains::deep" in stack and "<module>" not in stack]
    assert sum(stacks[stack] for stack in threads) > 10_000_000
    for stack in threads:
        assert is_within(stack, "chains::deep", "chains::deep", *CHAIN[-2:])
        assert "starts" not in stack


def test_an_unloaded_library_is_forgotten(cpython: Interpreter, libraries: Path, tmp_path: Path) -> None:
    program = """
import _ctypes, shutil
for number in range(8):
    name = f"./lib{number}.so"
    shutil.copy("libchains.so", name)
    library = ctypes.CDLL(name)
    for _ in range(100): library.chains_allocate(ctypes.c_size_t(40_000))
    # Until nthbyte has looked at it, which it may have done while the library was loaded.
    while mappings(name[2:]) == LOADED:
        for _ in range(20): library.chains_allocate(ctypes.c_size_t(40_000))
    _ctypes.dlclose(library._handle)
    del library
"""
    program = program.replace("LOADED", str(mappings_at_first(cpython, libraries, tmp_path)))
    stacks = _stacks(cpython, libraries, tmp_path, program, every="16K")
    assert _share(stacks, "chains_allocate", *CHAIN) == 1


def test_without_debug_information(cpython: Interpreter, libraries: Path, tmp_path: Path) -> None:
    """A stripped library has the names that are exported; a replaced one has none; its debug file brings all back."""
    program = """
def allocate():
    for _ in range(1000): cpp.chains_allocate(40_000)
allocate()
"""
    library = tmp_path / "libchains.so"
    shutil.copy(libraries / "libchains.so", library)
    subprocess.run(["objcopy", "--strip-unneeded", library], check=True)
    stacks = _stacks(cpython, libraries, tmp_path, program)
    assert _share(stacks, "chains_allocate", "allocate", "chains_allocate") == 1
    assert not any("chains::deep" in stack for stack in stacks)
    # Another build of the library, and damage.
    whole = library.read_bytes()
    for content in (b"", b"\x7fELF" + bytes(60), whole[: len(whole) // 2], Path("/bin/true").read_bytes()):
        library.unlink()
        library.write_bytes(content)
        stacks = collapsed(tmp_path, "--domain", "native")
        assert not any("chains_allocate" in stack for stack in stacks)
        assert any(frame.startswith("libchains.so+0x") for stack in stacks for frame in stack)
    # What debuginfod's client has downloaded.
    notes = subprocess.run(
        ["readelf", "-n", libraries / "libchains.so"], capture_output=True, text=True, check=True
    )
    [build_id] = [line.split()[-1] for line in notes.stdout.splitlines() if "Build ID" in line]
    cache = tmp_path / "cache" / build_id
    cache.mkdir(parents=True)
    shutil.copy(libraries / "libchains.so", cache / "debuginfo")
    words = ["export", "out.nthb", "--to", "collapsed", "-o", "-", "--domain", "native"]
    done = run(
        [str(COMMAND), *words], tmp_path, environment={"DEBUGINFOD_CACHE_PATH": str(cache.parent)}
    ).ok()
    assert "chains::Store::allocate<int>" in done.out


def test_exports_have_the_libraries(cpython: Interpreter, libraries: Path, tmp_path: Path) -> None:
    program = """
def allocate():
    for _ in range(1000): cpp.chains_allocate(40_000)
allocate()
"""
    _stacks(cpython, libraries, tmp_path, program)
    for kind, name in (("pprof", "out.pb.gz"), ("firefox", "out.json"), ("speedscope", "out.speedscope")):
        report("export", "out.nthb", "--to", kind, "-f", "-o", name, folder=tmp_path).ok()
        content = (tmp_path / name).read_bytes()
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        assert b"chains::Store::allocate<int>" in content, kind
        assert b"libchains.so" in content, kind
    # A merged profile has the images still, whose functions are looked up when it is read.
    (tmp_path / "out.nthb").rename(tmp_path / "other.nthb")
    _stacks(cpython, libraries, tmp_path, program)
    report("merge", "out.nthb", "other.nthb", "-f", "-o", "merged.nthb", folder=tmp_path).ok()
    os.replace(tmp_path / "merged.nthb", tmp_path / "out.nthb")
    assert any(is_within(stack, *CHAIN) for stack in collapsed(tmp_path, "--domain", "native"))


def test_no_thread_of_the_program_looks_at_libraries(
    cpython: Interpreter, libraries: Path, tmp_path: Path
) -> None:
    """The writer thread opens the files of libraries, and the first stacks in a new library are complete."""
    strace = shutil.which("strace")
    if strace is None or run([strace, "-o", "/dev/null", "true"], tmp_path).status != 0:
        pytest.skip("strace does not work here")
    program = """
import os, shutil
def allocate(library):
    library.chains_allocate(ctypes.c_size_t(40_000))
for number in range(20):
    shutil.copy("libchains.so", f"lib{number}.so")
    library = ctypes.CDLL(f"./lib{number}.so")
    for _ in range(20): allocate(library)
# The thread that ends the session would look at unknown libraries.
while mappings("lib19.so") == LOADED: allocate(library)
print(os.getpid())
"""
    program = program.replace("LOADED", str(mappings_at_first(cpython, libraries, tmp_path)))
    (tmp_path / "app.py").write_text(HEADER.replace("RUST", "False") + program)
    words = ["-m", "nthbyte", "run", "--native-frames", "--every", "16K", "-o", "out.nthb", "app.py"]
    traced = [strace, "-f", "-e", "trace=openat", "-o", str(tmp_path / "trace.txt")]
    done = run([*traced, *cpython.words(words, tmp_path)], tmp_path).ok()
    main = done.out.strip()
    # The dynamic linker opens a library without O_NONBLOCK.
    opened = [line for line in (tmp_path / "trace.txt").read_text().splitlines() if "O_NONBLOCK" in line]
    ours = [line.split()[0] for line in opened if "/lib1" in line and '.so"' in line]
    assert len(ours) >= 1 and main not in ours, opened
    stacks = collapsed(tmp_path, "--domain", "native")
    assert _share(stacks, "allocate", "<module>", "allocate", *CHAIN) == 1, stacks


def test_unwind_tables_that_never_end_are_not_used(
    cpython: Interpreter, libraries: Path, tmp_path: Path
) -> None:
    """The stack in the broken library has its Python frames, and others are whole."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None
    flags = ["-O1", "-Wall", "-Werror", "-fPIC", "-shared", "-Wl,--build-id"]
    subprocess.run([compiler, *flags, "-o", tmp_path / "libloops.so", PROGRAMS / "loops.c"], check=True)
    dumped = subprocess.run(
        ["readelf", "--debug-dump=frames", tmp_path / "libloops.so"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "DW_OP_skip: -3" in dumped.stdout
    program = """
loops = ctypes.CDLL("./libloops.so")
def broken():
    for _ in range(500): loops.loops_allocate(ctypes.c_size_t(40_000))
def whole():
    for _ in range(500): cpp.chains_allocate(40_000)
broken()
whole()
"""
    stacks = _stacks(cpython, libraries, tmp_path, program)
    assert _share(stacks, "broken", "<module>", "broken") == 1
    assert _share(stacks, "whole", "<module>", "whole", *CHAIN) == 1
