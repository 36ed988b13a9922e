"""Fixtures: the interpreters to test with."""

from __future__ import annotations

import os

import hypothesis
import pytest

import harness

# The same examples each time, however long they take. Loaded first: the settings of a test are changes of these.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test that takes ``interpreter``, ``cpython`` or ``pypy`` once for each that is there.

    With the environment variable ``NTHBYTE_QUICK``, one with the marker ``slow`` runs for two of them only: those with
    the oldest and the newest Python.
    """
    is_short = bool(os.environ.get("NTHBYTE_QUICK")) and any(metafunc.definition.iter_markers("slow"))
    found = {"interpreter": harness.interpreters, "cpython": harness.cpythons, "pypy": harness.pypys}
    for name, function in found.items():
        if name in metafunc.fixturenames:
            those = sorted(function(), key=lambda one: one.python_version) if is_short else function()
            those = [*those[:1], *those[1:][-1:]] if is_short else those
            metafunc.parametrize(name, those, ids=str, scope="session")


def pytest_report_header() -> list[str]:
    """Prints the interpreters, so that a log shows which ones were missing."""
    return [f"interpreters: {', '.join(map(str, harness.interpreters()))}"]


def pytest_configure() -> None:
    if not harness.COMMAND.exists():
        pytest.exit("build/site is missing: run `make` first", returncode=2)
