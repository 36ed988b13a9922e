"""The outcomes of tests: read from what a run recorded, and compared between plain runs and profiled ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MISSING = "not run"

# The beginning of the name of a run's folder, which may be in the names of tests.
FOLDER = "nthbyte-compatibility-"
# What names and reasons have that differs from run to run: the rest of that name, and UUIDs.
_RANDOM = re.compile(rf"(?<={FOLDER})\w+|[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}")

# A name may be reported more than once: by its parts, or by its call and its teardown. The first of these stays.
_WORST_FIRST = ["error", "failed", "passed unexpectedly", "failed as expected", "skipped", "passed"]


@dataclass(frozen=True)
class Outcome:
    """What became of a test."""

    kind: str
    reason: str = ""
    """Why it was skipped, or how it failed."""

    @property
    def compared(self) -> str:
        """What must be the same with nthbyte: the kind and, of a test that was skipped, why."""
        if self.kind != "skipped":
            return self.kind
        # Numbers are temporary names, ports and processes.
        return f"skipped: {re.sub(r'[0-9]+', 'N', self.reason)}"


Outcomes = Mapping[str, Outcome]


def read(path: Path) -> dict[str, Outcome]:
    """Reads the lines of a recorder; the last one may be cut off."""
    found: dict[str, Outcome] = {}
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        try:
            told = json.loads(line)
        except ValueError:
            continue
        test = _RANDOM.sub("", told["id"])
        new, old = Outcome(told["outcome"], _RANDOM.sub("", told["reason"])), found.get(test)
        if old is None or _WORST_FIRST.index(new.kind) < _WORST_FIRST.index(old.kind):
            found[test] = new
    return found


@dataclass(frozen=True)
class Difference:
    """A test whose outcomes with nthbyte and without have nothing in common."""

    test: str
    plain: str
    profiled: str


def differences(plain: Sequence[Outcomes], profiled: Sequence[Outcomes]) -> list[Difference]:
    """Returns the tests that had another outcome under nthbyte in each run.

    A test whose outcome is the same in some plain run and some profiled run is no difference: see `unstable`.
    """
    found = []
    for test in sorted(_names([*plain, *profiled])):
        without, with_nthbyte = _of_each(plain, test), _of_each(profiled, test)
        if not set(without) & set(with_nthbyte):
            found.append(Difference(test, _joined(without), _joined(with_nthbyte)))
    return found


def unstable(plain: Sequence[Outcomes], profiled: Sequence[Outcomes]) -> list[str]:
    """Returns the tests that had several outcomes and are no difference."""
    differing = {one.test for one in differences(plain, profiled)}
    return [
        test
        for test in sorted(_names([*plain, *profiled]) - differing)
        if len({*_of_each(plain, test), *_of_each(profiled, test)}) > 1
    ]


def counts(outcomes: Outcomes) -> dict[str, int]:
    """Returns how many tests had each outcome."""
    kinds = [one.kind for one in outcomes.values()]
    return {kind: kinds.count(kind) for kind in reversed(_WORST_FIRST) if kind in kinds}


def _names(runs: Iterable[Outcomes]) -> set[str]:
    return {test for run in runs for test in run}


def _of_each(runs: Sequence[Outcomes], test: str) -> list[str]:
    return [run[test].compared if test in run else MISSING for run in runs]


def _joined(outcomes: Sequence[str]) -> str:
    return ", ".join(sorted(set(outcomes)))
