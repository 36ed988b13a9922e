"""The interpreters' own tests have the same outcomes under nthbyte: a hundred modules, see chosen.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatibility import chosen, comparison, stdlib
from harness import Interpreter, cpythons, interpreters, pypys
from held import snapshots


@pytest.mark.each
def test_fast_modules(interpreter: Interpreter) -> None:
    those = [one for one in interpreters() if stdlib.modules(one)]
    if interpreter not in those:
        pytest.skip("this interpreter comes without its tests")
    there = set(stdlib.modules(interpreter))
    if interpreter.is_pypy:
        there -= chosen.UNSTABLE_ON_PYPY
    modules = [one for one in chosen.share(chosen.FAST, those.index(interpreter), len(those)) if one in there]
    _check(comparison.compare(stdlib.suite(interpreter, *modules, limit=3000), ()))


@pytest.mark.slow
@pytest.mark.parametrize("module", chosen.SLOW)
def test_slow_modules(module: str) -> None:
    those = [one for one in cpythons() if module in stdlib.modules(one)]
    if not those:
        pytest.skip("there is no CPython with its tests")
    _check(comparison.compare(stdlib.suite(those[-1], module, limit=3000), ()))


@pytest.mark.slow
@pytest.mark.parametrize("module", chosen.SLOW_ON_PYPY)
def test_slow_modules_on_pypy(module: str) -> None:
    those = [one for one in pypys() if not one.tree and module in stdlib.modules(one)]
    if not those:
        pytest.skip("this system has no PyPy with its tests")
    _check(comparison.compare(stdlib.suite(those[0], module, limit=3000), ()))


@pytest.mark.slow
def test_modules_with_a_snapshot_each_tenth_of_a_second(tmp_path: Path) -> None:
    """A copy of the process looks at all objects, again and again: the tests do not notice."""
    those = [one for one in cpythons() if stdlib.modules(one)]
    if not those:
        pytest.skip("there is no CPython with its tests")
    modules = [one for one in chosen.FAST if one in stdlib.modules(those[-1])]
    profile = tmp_path / "a.nthb"
    options = ("--holders", "--snapshot", "100ms", "--no-children", "-f", "-o", str(profile))
    _check(comparison.compare(stdlib.suite(those[-1], *modules, limit=3000), options))
    outcomes = {(found.reason, found.outcome) for found in snapshots(profile)}
    assert ("4", "complete") in outcomes, outcomes


def _check(result: comparison.Result) -> None:
    assert result.state == comparison.COMPARED, result
    assert not result.differences, f"{result.differences}\n{result.output}"
