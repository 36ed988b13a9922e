"""Fixtures: the interpreters to test with."""

from __future__ import annotations

import hypothesis
import pytest

import harness
import without_gil

# The same examples each time, however long they take. Loaded first: the settings of a test are changes of these.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")


# Folders of tests of what an agent does inside an interpreter: they run once for each version of Python.
INSIDE = ("cpython", "labels", "pypy")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test that takes ``interpreter``, ``cpython`` or ``pypy`` once for each of those that it needs.

    With NTHBYTE_EVERY_INTERPRETER that is every one. Without, it depends on what a test is about:

    - with the marker ``each``, every one: it is about the structures and the code of one binary, or the interpreters
      share its work;
    - with the marker ``slow``, the newest CPython and the newest PyPy;
    - in the folders of ``INSIDE``, the newest of each version of Python;
    - elsewhere (the command, reports, wording), and with the marker ``launcher``, the oldest and the newest CPython,
      and the newest PyPy.

    A CPython without the GIL comes on top, if it is there: see ``without_gil``.
    """
    found = {"interpreter": harness.interpreters, "cpython": harness.cpythons, "pypy": harness.pypys}
    for name, function in found.items():
        if name in metafunc.fixturenames:
            chosen: list[object] = [*_chosen(metafunc, function())]
            if name != "pypy":
                chosen += without_gil.rows(metafunc.definition)
            metafunc.parametrize(name, chosen, ids=str, scope="session")


def _chosen(metafunc: pytest.Metafunc, there: list[harness.Interpreter]) -> list[harness.Interpreter]:
    def has(marker: str) -> bool:
        return any(metafunc.definition.iter_markers(marker))

    if harness.IS_ALL or has("each"):
        return there
    by_age = sorted(there, key=lambda one: one.about[1])
    if metafunc.definition.path.parent.name in INSIDE and not (has("slow") or has("launcher")):
        # The newest of each.
        return list({(one.is_pypy, one.python_version): one for one in by_age}.values())
    cpythons = [one for one in by_age if not one.is_pypy]
    pypys = [one for one in by_age if one.is_pypy]
    oldest = [] if has("slow") else cpythons[:-1][:1]
    return [*oldest, *cpythons[-1:], *pypys[-1:]]


def pytest_report_header() -> list[str]:
    """Prints the interpreters, so that a log shows which ones were missing."""
    return [f"interpreters: {', '.join(map(str, harness.interpreters()))}"]


def pytest_configure() -> None:
    if not harness.COMMAND.exists():
        pytest.exit("build/site is missing: run `make` first", returncode=2)
