"""CPython inside of a program that has loaded it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import SITE, Interpreter, summary

PROGRAM = r"""
#include <dlfcn.h>
#include <stdio.h>

/* Loads the library that the first argument names, and runs the Python code of each other one in a new CPython. */
int main(int number, char **words) {
    void *library = dlopen(words[1], RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    for (int word = 2; word < number; word++) {
        ((void (*)(void))dlsym(library, "Py_Initialize"))();
        int failed = ((int (*)(const char *))dlsym(library, "PyRun_SimpleString"))(words[word]);
        ((void (*)(void))dlsym(library, "Py_Finalize"))();
        if (failed) return 1;
    }
    return 0;
}
"""

CODE = """
import nthbyte
nthbyte.start("out.nthb", every="4KiB")
keep = [[n] for n in range(20_000)]
nthbyte.stop()
try:
    nthbyte.start("time.nthb", every="4KiB", cpu=1000)
    keep = [[n] for n in range(20_000)]
    nthbyte.stop()
except nthbyte.Error as error:
    print(error)
"""


def library_of(cpython: Interpreter, folder: Path) -> tuple[str, str]:
    """The shared library of an interpreter and its home. Skips if it has none here."""
    code = (
        "import json, sys, sysconfig as s; v = s.get_config_var; "
        "print(json.dumps([v('Py_ENABLE_SHARED'), v('LIBDIR'), v('INSTSONAME'), sys.base_prefix]))"
    )
    is_shared, place, name, home = json.loads(cpython.python("-c", code, folder=folder).ok().out)
    if cpython.tree or not is_shared or not Path(place, name).exists():
        pytest.skip("this CPython has no shared library here")
    return str(Path(place, name)), home


@pytest.fixture
def host(cpython: Interpreter, tmp_path: Path) -> Callable[..., str]:
    """Returns a function that runs code in a program that loads CPython, and returns what the code has printed."""
    library, home = library_of(cpython, tmp_path)
    (tmp_path / "host.c").write_text(PROGRAM)
    subprocess.run(["cc", "-o", "host", "host.c", "-ldl"], cwd=tmp_path, check=True)

    environment = {"PYTHONHOME": home, "PYTHONDONTWRITEBYTECODE": "1"}

    def run(*code: str) -> str:
        words = [
            str(tmp_path / "host"),
            library,
            *(f"import sys\nsys.path.insert(0, {str(SITE)!r})\n{one}" for one in code),
        ]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run


def test_a_cpython_that_was_loaded_later(
    host: Callable[..., str], cpython: Interpreter, tmp_path: Path
) -> None:
    said = host(CODE)
    assert summary(tmp_path / "out.nthb")["samples"] > 100
    if cpython.python_version < (3, 12):
        assert summary(tmp_path / "time.nthb")["samples"] > 100
    else:
        # A tick might interrupt malloc, and need it.
        assert said.startswith("cpu is not possible where a running program has loaded CPython")
        assert not (tmp_path / "time.nthb").exists()


def test_a_second_cpython_in_the_same_process(host: Callable[..., str], tmp_path: Path) -> None:
    first, second = (
        f"""
import nthbyte
try:
    nthbyte.start("{name}.nthb", every="4KiB")
    keep = [[n] for n in range(20_000)]
    nthbyte.stop()
except nthbyte.Error as error:
    print(error)
"""
        for name in ("first", "second")
    )
    said = host(first, second)
    assert said.startswith("this process has finalized CPython") and said.count("\n") == 1
    assert [path.name for path in tmp_path.glob("*.nthb")] == ["first.nthb"]
