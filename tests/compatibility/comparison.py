"""Runs a suite without nthbyte and under it, and compares the outcomes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from compatibility import outcomes
from compatibility.execution import TIMED_OUT, Command, Ended, execute
from compatibility.outcomes import Difference, Outcome

# How often a suite is run on each side while there are differences.
RUNS = 3
# A suite that takes too long is given this many times as long, once.
MORE_TIME = 3

COMPARED, TOO_SLOW, NO_TESTS, NOT_PREPARED = "compared", "too slow", "no tests", "not prepared"


@dataclass(frozen=True)
class Suite:
    """Tests that one command runs."""

    host: str
    """What runs them: the name of an interpreter, or of a package and an interpreter."""
    name: str
    command: Callable[[Path, Path, Sequence[str] | None, Sequence[str]], Command]
    """Returns the command that writes outcomes into a file.

    It takes an empty folder, the file, options of ``nthbyte run`` (None for a plain run), and the tests that are to be
    run at least: all, if there are none.
    """
    limit: float
    """Seconds that it may take."""


@dataclass
class Result:
    """What the comparison of a suite found."""

    state: str
    """COMPARED, TOO_SLOW or NO_TESTS."""
    tests: int = 0
    """Tests that were compared."""
    counts: dict[str, int] = field(default_factory=dict)
    """The outcomes of the longest plain run, by kind."""
    differences: list[Difference] = field(default_factory=list)
    unstable: list[str] = field(default_factory=list)
    """Tests whose outcome differs from run to run, with and without nthbyte."""
    statuses: list[list[int]] = field(default_factory=list)
    """The exit statuses of the runs without nthbyte, and of those with it."""
    seconds: list[float] = field(default_factory=list)
    """The time of the first run without nthbyte, and of the first with it."""
    output: str = ""
    """The end of what the last run with nthbyte wrote, if there is a difference or no test."""

    def as_json(self) -> dict[str, Any]:
        """Returns the result for a JSON file."""
        return asdict(self)


@dataclass(frozen=True)
class _Run:
    ended: Ended
    outcomes: dict[str, Outcome]
    output: str


# In place of a test: how the whole command ended.
EXIT = "the exit of the command"


def compare(suite: Suite, options: Sequence[str], *, once: bool = False) -> Result:
    """Runs a suite both ways, and again while there are differences, but not if ``once``."""
    limit = suite.limit
    plain, profiled = _both(suite, options, limit, ())
    if not once and (plain.ended.timed_out or profiled.ended.timed_out):
        limit *= MORE_TIME
        plain, profiled = _both(suite, options, limit, ())
    if plain.ended.timed_out:
        return Result(TOO_SLOW, seconds=[limit])
    if profiled.ended.timed_out and plain.ended.seconds > limit / MORE_TIME:
        # Not much slower than the plain run need be.
        return Result(TOO_SLOW, seconds=[plain.ended.seconds, limit])
    without, with_nthbyte = [plain], [profiled]
    while (found := _differences(without, with_nthbyte)) and len(without) < (1 if once else RUNS):
        again = _both(suite, options, limit, [one.test for one in found if one.test != EXIT])
        _complete(without, again[0])
        _complete(with_nthbyte, again[1])
    names = [one.outcomes for one in without], [one.outcomes for one in with_nthbyte]
    # Something may have ended the first run early.
    most = max(names[0], key=len)
    tests = len(most)
    return Result(
        COMPARED if tests or found else NO_TESTS,
        tests,
        outcomes.counts(most),
        found,
        outcomes.unstable(*names),
        [[run.ended.status for run in runs] for runs in (without, with_nthbyte)],
        [round(run.ended.seconds, 1) for run in (without[0], with_nthbyte[0])],
        with_nthbyte[-1].output[-6000:] if found or not tests else "",
    )


def _complete(runs: list[_Run], new: _Run) -> None:
    """Adds a run that may have been of a part only: the other tests keep their outcome."""
    runs.append(_Run(new.ended, {**runs[0].outcomes, **new.outcomes}, new.output))


def _differences(plain: Sequence[_Run], profiled: Sequence[_Run]) -> list[Difference]:
    found = outcomes.differences([one.outcomes for one in plain], [one.outcomes for one in profiled])
    statuses = [{one.ended.status for one in runs} for runs in (plain, profiled)]
    if not statuses[0] & statuses[1]:
        found.append(Difference(EXIT, *(", ".join(map(_named, sorted(those))) for those in statuses)))
    return found


def _named(status: int) -> str:
    return "no end" if status == TIMED_OUT else f"status {status}"


def _both(suite: Suite, options: Sequence[str], limit: float, tests: Sequence[str]) -> tuple[_Run, _Run]:
    return _run(suite, None, limit, tests), _run(suite, options, limit, tests)


def _run(suite: Suite, options: Sequence[str] | None, limit: float, tests: Sequence[str]) -> _Run:
    with _new_folder() as folder:
        recorded, output = folder / "outcomes", folder / "output"
        inside = folder / "run"
        inside.mkdir()
        ended = execute(suite.command(inside, recorded, options, tests), output, limit)
        return _Run(ended, outcomes.read(recorded), output.read_text(errors="replace"))


@contextmanager
def _new_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=outcomes.FOLDER))
    try:
        yield folder
    finally:
        # Tests leave folders that cannot be read.
        shutil.rmtree(folder, ignore_errors=True)
