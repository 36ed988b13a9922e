"""CPython's own tests pass under nthbyte as they pass without it."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from harness import Done, Interpreter, cpythons

QUICK = ["test_gc", "test_weakref", "test_dict", "test_list", "test_json", "test_tracemalloc"]
SLOW = ["test_threading", "test_multiprocessing_fork", "test_io", "test_unicode", "test_capi"]

# How often what differs is run again, with and without.
TRIES = 3


@pytest.mark.parametrize("module", QUICK)
def test_quick_modules(module: str, cpython: Interpreter, tmp_path: Path) -> None:
    if os.environ.get("NTHBYTE_QUICK") and cpython not in (cpythons()[0], cpythons()[-1]):
        pytest.skip("the oldest and the newest are enough where time is short")
    _compare(module, cpython, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("module", SLOW)
def test_slow_modules(module: str, cpython: Interpreter, tmp_path: Path) -> None:
    if os.environ.get("NTHBYTE_QUICK") and cpython != cpythons()[-1]:
        pytest.skip("the newest is enough where time is short")
    _compare(module, cpython, tmp_path)


def _compare(module: str, interpreter: Interpreter, folder: Path) -> None:
    if interpreter.python("-c", "import test.test_gc", folder=folder).status:
        pytest.skip("this interpreter comes without its tests")
    words = ["-m", "test", "--junit-xml", "results.xml", module]
    plain, without = _outcomes(interpreter.python(*words, folder=folder, timeout=1200), folder)
    if not without:
        pytest.skip("this interpreter does not have this test")
    run = ["run", "-q", "-o", "out.nthb"]
    profiled, with_nthbyte = _outcomes(interpreter.nthbyte(*run, *words, folder=folder, timeout=1200), folder)
    differ = _differences(without, with_nthbyte)
    if not differ:
        assert profiled.status == plain.status, profiled.out[-6000:]
    # Some tests depend on what else the machine does, so what differs must differ each time.
    for _ in range(TRIES):
        if differ:
            only = [*words, *(word for name in differ for word in ("-m", name))]
            plain, again = _outcomes(interpreter.python(*only, folder=folder, timeout=1200), folder)
            without.update(again)
            profiled, again = _outcomes(interpreter.nthbyte(*run, *only, folder=folder, timeout=1200), folder)
            with_nthbyte.update(again)
            differ = _differences(without, with_nthbyte)
    assert not differ, f"{differ}\n{profiled.out[-6000:]}"


def _differences(
    without: dict[str, str], with_nthbyte: dict[str, str]
) -> dict[str, tuple[str | None, str | None]]:
    both = {
        name: (without.get(name), with_nthbyte.get(name)) for name in without.keys() | with_nthbyte.keys()
    }
    return {name: (one, other) for name, (one, other) in both.items() if one != other}


def _outcomes(done: Done, folder: Path) -> tuple[Done, dict[str, str]]:
    """Returns what became of each test."""
    results = folder / "results.xml"
    outcomes: dict[str, str] = {}
    if not results.exists():
        return done, outcomes
    for case in ET.parse(results).iter("testcase"):
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        outcomes[case.get("name", "?")] = kinds.pop() if kinds else "passed"
    results.unlink()
    return done, outcomes
