"""Fixtures: the interpreters to test with."""

from __future__ import annotations

import pytest

import harness


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test that takes ``interpreter``, ``cpython`` or ``pypy`` once for each that is there."""
    found = {"interpreter": harness.interpreters, "cpython": harness.cpythons, "pypy": harness.pypys}
    for name, those in found.items():
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, those(), ids=str, scope="session")


def pytest_report_header() -> list[str]:
    """Prints the interpreters, so that a log shows which ones were missing."""
    return [f"interpreters: {', '.join(map(str, harness.interpreters()))}"]


def pytest_configure() -> None:
    if not harness.COMMAND.exists():
        pytest.exit("build/site is missing: run `make` first", returncode=2)
