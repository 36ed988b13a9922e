"""The tests of other interpreters that run on a CPython without the GIL as well, and why some of them do not.

``make test-all`` runs all of the files on it, ``make test`` those of ``QUICK``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import pytest
from _pytest.mark import ParameterSet

import harness

FILES: Sequence[str] = (
    "cpython/test_deep_stacks.py",
    "cpython/test_deleted_states.py",
    "cpython/test_exits.py",
    "cpython/test_patches.py",
    "cpython/test_ready.py",
    "cpython/test_small_stacks.py",
    "cpython/test_time_ends.py",
    "cpython/test_time_samples.py",
    "labels/test_labels.py",
)

# What `make test` runs: for each part that is not the same there, a test that takes a second or two.
QUICK: Sequence[str] = (
    "cpython/test_time_samples.py::test_functions_have_their_shares",
    "labels/test_labels.py::test_labels_are_those_of_the_context",
    "labels/test_labels.py::test_tasks_of_asyncio_have_names_without_a_call",
)

HOLDERS = "who holds what is not recorded"
GIL = "it is about the GIL"
LAST_SAMPLE = "the last sample of a thread is recorded with its next one, or by another thread"
COLLECTOR = "the collector destroys what a program leaves, without nthbyte too"

# What is not there, by the name of the test.
NOT_THERE: Mapping[str, str] = {
    "cpython/test_exits.py::test_the_end_of_the_program_destroys_its_objects": COLLECTOR,
    "cpython/test_exits.py::test_the_last_object_is_not_lost_if_it_is_large": LAST_SAMPLE,
    "cpython/test_time_samples.py::test_the_gil": GIL,
    "labels/test_labels.py::test_reports_agree_who_pays_at_the_peak_at_the_end_and_who_holds_it": HOLDERS,
}


def rows(test: pytest.Item) -> list[ParameterSet]:
    """The CPythons without the GIL for a test. With a mark where it cannot run there."""
    name = f"{test.path.parent.name}/{test.path.name}::{test.name}"
    if not _is_among(name, FILES if harness.IS_ALL else QUICK):
        return []
    why = NOT_THERE.get(name)
    marks = [pytest.mark.skip(reason=f"without the GIL: {why}")] if why else []
    return [pytest.param(one, marks=marks) for one in harness.free_threaded()]


def _is_among(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, f"{pattern}*") for pattern in patterns)
