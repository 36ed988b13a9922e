"""PyPy's own tests have the same results with and without nthbyte."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from harness import Done, Interpreter, lasting_differences

QUICK = ["test_gc", "test_weakref", "test_dict", "test_set"]
SLOW = ["test_json", "test_threading", "test_generators"]


@pytest.mark.parametrize("module", QUICK)
def test_quick_modules(module: str, pypy: Interpreter, tmp_path: Path) -> None:
    _compare(module, pypy, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("module", SLOW)
def test_slow_modules(module: str, pypy: Interpreter, tmp_path: Path) -> None:
    if os.environ.get("NTHBYTE_QUICK") and pypy.tree:
        pytest.skip("one PyPy is enough where time is short")
    if module == "test_threading" and pypy.tree:
        pytest.skip("it does not end there, without nthbyte either")
    _compare(module, pypy, tmp_path)


def _compare(module: str, pypy: Interpreter, folder: Path) -> None:
    # Debian's package has no C sources of this module. Then the tests that need it are skipped.
    (folder / "_testcapi.py").write_text("raise ImportError")
    if pypy.python("-c", f"import test.{module}", folder=folder).status:
        pytest.skip("this interpreter comes without its tests")
    words = ["-m", "unittest", "-v", f"test.{module}"]
    plain = pypy.python(*words, folder=folder, timeout=3000)
    if "ERROR: setUpModule" in plain.err:
        pytest.skip("this interpreter cannot run them")
    profiled = pypy.nthbyte("run", "-q", "-o", "out.nthb", *words, folder=folder, timeout=3000)
    without, with_nthbyte = _outcomes(plain), _outcomes(profiled)
    assert without, plain.err[-2000:]

    def again(names: list[str]) -> tuple[dict[str, str], dict[str, str]]:
        only = [*words, *(word for name in names for word in ("-k", name.split()[0]))]
        one = pypy.python(*only, folder=folder, timeout=3000)
        other = pypy.nthbyte("run", "-q", "-o", "out.nthb", *only, folder=folder, timeout=3000)
        return _outcomes(one), _outcomes(other)

    differ = lasting_differences(without, with_nthbyte, again)
    assert not differ, f"{differ}\n{profiled.err[-6000:]}"


def _outcomes(done: Done) -> dict[str, str]:
    """Returns the result of each test, from lines like ``name (class) ... ok``."""
    found = re.findall(
        r"^(test\w+ \([\w.]+\)).*?\.\.\. (ok|FAIL|ERROR|skipped|expected failure)", done.err, re.M
    )
    return dict(found)
