"""A few rounds of the stress program: a bounded number of steps on each interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Interpreter
from soak import soak

SEED = 2
STEPS = 40


@pytest.mark.parametrize("number", range(4))
def test_a_round(number: int, interpreter: Interpreter, tmp_path: Path) -> None:
    one = soak.make_round(SEED, number, STEPS, interpreter.is_pypy)
    folder = tmp_path / "round"
    folder.mkdir()
    wrong = soak.run(one, interpreter, folder)
    plain = (_fresh(tmp_path / f"plain{attempt}") for attempt in range(5))
    if wrong and any(soak.fails_without(one, interpreter, folder) for folder in plain):
        pytest.skip("it fails without nthbyte, too")
    assert wrong == [], str(one)


def test_the_rounds_have_every_feature() -> None:
    rounds = [soak.make_round(SEED, number, STEPS, False) for number in range(4)]
    assert {feature for one in rounds for feature in one.features} == set(soak.FEATURES)
    assert {one.options is None for one in rounds} == {True, False}
    # A seed gives the same rounds again.
    assert rounds == [soak.make_round(SEED, number, STEPS, False) for number in range(4)]


def _fresh(folder: Path) -> Path:
    folder.mkdir()
    return folder
