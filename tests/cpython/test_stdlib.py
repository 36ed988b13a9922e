"""CPython's own tests have the same results with and without nthbyte."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from harness import Done, Interpreter, cpythons, lasting_differences

QUICK = ["test_gc", "test_weakref", "test_dict", "test_list", "test_json", "test_tracemalloc"]
SLOW = ["test_threading", "test_multiprocessing_fork", "test_io", "test_unicode", "test_capi"]
SLOWEST = ["test_multiprocessing_fork"]


@pytest.mark.parametrize("module", QUICK)
def test_quick_modules(module: str, cpython: Interpreter, tmp_path: Path) -> None:
    if os.environ.get("NTHBYTE_QUICK") and cpython not in (cpythons()[0], cpythons()[-1]):
        pytest.skip("the oldest and the newest are enough where time is short")
    _compare(module, cpython, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("module", SLOW)
def test_slow_modules(module: str, cpython: Interpreter, tmp_path: Path) -> None:
    if os.environ.get("NTHBYTE_QUICK") and (cpython != cpythons()[-1] or module in SLOWEST):
        pytest.skip("the newest is enough where time is short, and tests of less than a minute")
    _compare(module, cpython, tmp_path)


def _compare(module: str, interpreter: Interpreter, folder: Path) -> None:
    if interpreter.python("-c", "import test.test_gc", folder=folder).status:
        pytest.skip("this interpreter comes without its tests")
    words = ["-m", "test", "--junit-xml", "results.xml", module]
    plain, without = _outcomes(interpreter.python(*words, folder=folder, timeout=3000), folder)
    if not without:
        pytest.skip("this interpreter does not have this test")
    run = ["run", "-q", "-o", "out.nthb"]
    profiled, with_nthbyte = _outcomes(interpreter.nthbyte(*run, *words, folder=folder, timeout=3000), folder)

    def again(names: list[str]) -> tuple[dict[str, str], dict[str, str]]:
        nonlocal plain, profiled
        only = [*words, *(word for name in names for word in ("-m", name))]
        plain, one = _outcomes(interpreter.python(*only, folder=folder, timeout=3000), folder)
        profiled, other = _outcomes(interpreter.nthbyte(*run, *only, folder=folder, timeout=3000), folder)
        return one, other

    differ = lasting_differences(without, with_nthbyte, again)
    assert not differ, f"{differ}\n{profiled.out[-6000:]}"
    assert profiled.status == plain.status, profiled.out[-6000:]


def _outcomes(done: Done, folder: Path) -> tuple[Done, dict[str, str]]:
    """Returns the result of each test."""
    results = folder / "results.xml"
    outcomes: dict[str, str] = {}
    if not results.exists():
        return done, outcomes
    for case in ET.parse(results).iter("testcase"):
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        outcomes[case.get("name", "?")] = kinds.pop() if kinds else "passed"
    results.unlink()
    return done, outcomes
