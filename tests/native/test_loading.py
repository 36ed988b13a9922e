"""nthbyte's library is loaded into a running program in C, which loads and unloads other libraries."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import LIBRARY, PROGRAMS

# The address of malloc is written into the code itself, when the library is loaded.
TEXT = """
.text
.globl take_text
.type take_text, @function
take_text:
    push %rbx
    mov %edi, %ebx
1:  mov $400, %edi
    movabs $malloc, %rax
    call *%rax
    mov %rax, %rdi
    movabs $free, %rax
    call *%rax
    dec %ebx
    jnz 1b
    pop %rbx
    ret
.section .note.GNU-stack,"",@progbits
"""


def _compile(folder: Path, *words: str | Path) -> None:
    subprocess.run(["cc", "-O1", "-fno-builtin", "-Wall", "-Werror", *words], cwd=folder, check=True)


@pytest.mark.parametrize(
    "link",
    [
        # Bound at the first call; at the start, with read-only slots; slots that are never read-only; fixed addresses.
        ("-Wl,-z,lazy",),
        ("-Wl,-z,now",),
        ("-Wl,-z,lazy,-z,norelro",),
        ("-Wl,-z,now", "-no-pie"),
    ],
    ids=lambda link: " ".join(link),
)
def test_libraries_come_and_go(link: tuple[str, ...], tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    options = ("-shared", "-fPIC", *(word for word in link if word != "-no-pie"))
    source = PROGRAMS / "plugin.c"
    _compile(tmp_path, *options, "-o", "libneeded.so", source)
    needs = ("-DNEEDED", source, "-L.", "-lneeded", "-Wl,-rpath,$ORIGIN")
    _compile(tmp_path, *options, "-o", "plugin.so", *needs)
    _compile(tmp_path, *options, "-o", "early.so", source)
    _compile(tmp_path, *options, "-DOWN", "-Wl,-soname,own.so", "-o", "own.so", source)
    _compile(tmp_path, *options, "-DOWN", "-Wl,-Bsymbolic", "-o", "symbolic.so", source)
    for number in range(5):
        shutil.copy(tmp_path / "plugin.so", tmp_path / f"plugin{number}.so")
    _compile(tmp_path, *options, "-o", "deep.so", source, "-Wl,--no-as-needed,-rpath,$ORIGIN", "./own.so")
    _compile(tmp_path, *options, "-o", "libpipe.so", source)
    _compile(
        tmp_path, *options, "-DNEEDED", "-o", "blocked.so", source, *("-L.", "-lpipe", "-Wl,-rpath,$ORIGIN")
    )
    (tmp_path / "libpipe.so").unlink()
    os.mkfifo(tmp_path / "libpipe.so")
    (tmp_path / "text.s").write_text(TEXT)
    _compile(tmp_path, *options, "-Wl,-z,notext", "-o", "text.so", "text.s")
    words = ("-o", "loading", PROGRAMS / "loading.c", "-lpthread", "-ldl")
    _compile(tmp_path, *link, *words)
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(
        [tmp_path / "loading", LIBRARY, tmp_path],
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    # Four threads make a hundred rounds of twenty calls.
    assert int(done.stdout) == 4 * 100 * 20
