"""Compiled programs, and allocators that are preloaded beside nthbyte's library."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import SITE

LIBRARY = SITE / "nthbyte" / "libnthbyte_native.so"
PROGRAMS = Path(__file__).parent / "programs"

# Debian's packages libjemalloc2, libmimalloc2.0 and libtcmalloc-minimal4.
ALLOCATORS = ["glibc", "libjemalloc.so.2", "libmimalloc.so.2", "libtcmalloc_minimal.so.4"]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns a function that compiles a program of ``programs``."""
    folder = tmp_path_factory.mktemp("programs")

    def compile_program(name: str) -> Path:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("there is no C compiler")
        program = folder / name
        words = [
            compiler,
            "-O1",
            "-g",
            "-Wl,--build-id",
            "-Wall",
            "-Werror",
            "-o",
            program,
            PROGRAMS / f"{name}.c",
            "-lpthread",
            "-ldl",
        ]
        subprocess.run(words, check=True)
        return program

    return compile_program


@pytest.fixture(params=ALLOCATORS)
def preload(request: pytest.FixtureRequest) -> str:
    """A value of LD_PRELOAD: nthbyte's library before one of the allocators."""
    if request.param == "glibc":
        return str(LIBRARY)
    skip_without(request.param)
    return f"{LIBRARY}:{request.param}"


def skip_without(library: str) -> None:
    """Skips the test if the system does not have this library."""
    known = subprocess.run(
        ["ldconfig", "-p"], capture_output=True, text=True, env={"PATH": "/sbin:/usr/sbin:/bin"}
    )
    if library not in known.stdout:
        pytest.skip(f"{library} is not installed")
