"""Fixtures of the tests on free-threaded CPython."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import example, free_threaded


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "threaded" in metafunc.fixturenames:
        found = free_threaded()
        missing = pytest.mark.skip(reason="no free-threaded CPython: TREES=freethreaded make interpreters")
        metafunc.parametrize("threaded", found or [pytest.param(None, marks=missing)], ids=str)


@pytest.fixture(scope="session")
def cut_lists() -> Path:
    """The cut lists, as a library that an interpreter loads."""
    return example("libcut_lists.so")
