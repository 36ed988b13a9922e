"""Runs the suites of `make test`, even if others fail, and prints a table of the results; ``--all`` runs every suite.

A suite is a target of the Makefile. Suites that keep one core busy run in pairs. The output of the one that began
first is shown at once, the other's afterwards. The table at the end has a line for each suite: its result, its time,
and the counts of its runner. Before it are the lines of each failed suite that say what failed.
"""

from __future__ import annotations

import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

# Lines that name a failure, or say what was expected: of pytest, of cargo, of compilers, of Node.
OF_FAILURES = re.compile(r"(FAILED|ERROR|E  |error\b|thread '|  (left|right): |test .* FAILED$|✖ )")
# Lines of a failed suite that are shown again, at most.
MOST_LINES = 40

PASSED, FAILED, SKIPPED, NOT_RUN = "passed", "FAILED", "skipped", "NOT RUN"
# The sum of `Suite.cores` of the suites that run at once.
CORES = 2


@dataclass(frozen=True)
class Suite:
    """A target of the Makefile, and its name in the table."""

    name: str
    target: str
    needs: str | None = None
    """The name of a suite that this one needs."""
    cores: int = CORES
    """How many cores it uses, at most CORES."""
    only_in_all: bool = False
    """Whether `make test` leaves it out: it takes long, and what it checks changes rarely or is checked elsewhere."""


SUITES = (
    Suite("build", "test-build"),
    Suite("rustfmt", "check-rustfmt"),
    Suite("clippy", "check-clippy"),
    Suite("rustdoc", "check-rustdoc"),
    Suite("cargo test", "test-rust", cores=1),
    Suite("nursery", "test-nursery", cores=1, only_in_all=True),
    Suite("ruff", "check-ruff"),
    Suite("mypy", "check-mypy"),
    Suite("structure", "test-structure"),
    Suite("pytest CPython", "test-cpython", needs="build"),
    Suite("integrations", "test-integrations", needs="build", only_in_all=True),
    Suite("pytest formats", "test-formats", needs="build", cores=1),
    Suite("Collector", "test-collector", needs="build", only_in_all=True),
    # Most of it waits.
    Suite("pytest processes", "test-processes", needs="build", cores=1),
    Suite("pytest native", "test-native", needs="build"),
    Suite("RPython", "test-rpython", needs="build", only_in_all=True),
    Suite("emulated", "test-emulated", needs="build"),
    Suite("macOS", "test-macos", only_in_all=True),
    Suite("compatibility", "test-compatibility", needs="build", cores=1),
    # Suites of one core begin in this order beside `cargo test`, the longest first.
    Suite("page", "test-page", cores=1),
    Suite("bench", "test-bench", cores=1),
    # Nearly all that it measures stays on one core.
    Suite("experiments", "test-experiments", needs="build", cores=1, only_in_all=True),
    Suite("pytest PyPy", "test-pypy", needs="build", cores=1),
    # Uses all cores that it gets, and begins when `cargo test` ends.
    Suite("pytest soak", "test-soak", needs="build", cores=1),
    Suite("docs", "check-docs", needs="build", cores=1),
    Suite("guide", "test-guide", needs="build", cores=1),
    Suite("tutorials", "test-tutorials", needs="build", only_in_all=True),
)


@dataclass(frozen=True)
class Result:
    """The result of a suite."""

    suite: Suite
    outcome: str
    seconds: float
    counts: str
    failures: Sequence[str] = ()
    """What its runner says of each failure."""

    @property
    def is_good(self) -> bool:
        """Whether `make test` may succeed with it."""
        return self.outcome in (PASSED, SKIPPED)


def run_all(suites: Sequence[Suite], make: Sequence[str]) -> list[Result]:
    """Runs the suites: in their order, or earlier where cores are free. ``make`` is the command that takes a target."""
    waiting = list(suites)
    results: dict[Suite, Result] = {}
    running: list[_Run] = []
    to_show: list[_Run] = []
    events: queue.SimpleQueue[tuple[_Run, str | None]] = queue.SimpleQueue()
    while waiting or running:
        for suite in list(waiting):
            needed = next((one for one in suites if one.name == suite.needs), None)
            if needed and needed in results and not results[needed].is_good:
                waiting.remove(suite)
                results[suite] = Result(suite, NOT_RUN, 0, f"it needs: {suite.needs}")
            elif not needed or needed in results:
                # What a suite needs may have to be made first, which no two may do at once.
                cores = CORES if suite.needs and not needed else suite.cores
                if sum(run.cores for run in running) + cores <= CORES:
                    waiting.remove(suite)
                    run = _Run(suite, cores, make, events)
                    running.append(run)
                    to_show.append(run)
        _show(to_show)
        if running:
            run, line = events.get()
            if line is None:
                running.remove(run)
                results[run.suite] = run.result()
            else:
                run.lines.append(line)
            _show(to_show)
    return [results[suite] for suite in suites]


class _Run:
    """A suite that runs."""

    def __init__(
        self,
        suite: Suite,
        cores: int,
        make: Sequence[str],
        events: queue.SimpleQueue[tuple[_Run, str | None]],
    ) -> None:
        """Puts each line of the output into ``events``, and None at the end."""
        self.suite = suite
        self.cores = cores
        self.lines: list[str] = [f"\n== {suite.name}\n"]
        self.shown = 0
        """Lines that were shown."""
        self.status: int | None = None
        self._events = events
        self._start = time.monotonic()
        # Runners write no colours into a pipe, unless an option asks for them.
        colours = (
            {"CARGO_TERM_COLOR": "always", "PY_COLORS": "1", "FORCE_COLOR": "1"}
            if sys.stdout.isatty()
            else {}
        )
        self._process = subprocess.Popen(
            [*make, suite.target],
            env={**colours, **os.environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._events.put((self, line))
        self._process.wait()
        self._events.put((self, None))

    def result(self) -> Result:
        """Returns its result, after its end."""
        seconds = time.monotonic() - self._start
        self.status = self._process.wait()
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in self.lines]
        left_out = [line.strip() for line in lines if re.match(r"nthbyte: .* not tested; missing:", line)]
        outcome = FAILED if self.status else SKIPPED if left_out else PASSED
        failures = failure_lines(lines) if outcome == FAILED else ()
        return Result(self.suite, outcome, seconds, left_out[0] if left_out else counts(lines), failures)


def _show(runs: list[_Run]) -> None:
    """Shows the output of the first of these that there is, then of the others up to the first that has not ended."""
    while runs:
        first = runs[0]
        sys.stdout.write("".join(first.lines[first.shown :]))
        sys.stdout.flush()
        first.shown = len(first.lines)
        if first.status is None:
            return
        runs.pop(0)


def counts(lines: Sequence[str]) -> str:
    """Returns the sums of the last lines of the test runners of cargo, pytest or Node."""
    found: Counter[str] = Counter()
    for line in lines:
        if line.startswith("test result: ") or re.fullmatch(
            r"(=+ )?\d+ \w+(, .*)? in [\d.]+s.*", line.strip()
        ):
            for number, kind in re.findall(r"(\d+) (passed|failed|error|skipped|ignored)", line):
                found["errors" if kind == "error" else kind] += int(number)
        elif match := re.match(r"\S+ (pass|fail|cancelled|skipped) (\d+)$", line):
            found[{"pass": "passed", "fail": "failed"}.get(match[1], match[1])] += int(match[2])
    return ", ".join(f"{number} {kind}" for kind, number in found.items() if number)


def failure_lines(lines: Sequence[str]) -> Sequence[str]:
    """Returns the lines of a suite's output that say what failed; if none does, its last ones."""
    lines = [line.rstrip() for line in lines if line.strip()]
    return [line for line in lines if OF_FAILURES.match(line)][:MOST_LINES] or lines[-MOST_LINES:]


def table(results: Sequence[Result]) -> str:
    """Returns the results as text, a line for each suite."""
    width = max(len(result.suite.name) for result in results)
    return "\n".join(
        f"{result.suite.name:{width}}  {result.outcome:7}  {result.seconds:6.0f} s  {result.counts}".rstrip()
        for result in results
    )


def main(arguments: Sequence[str]) -> int:
    """Runs the suites of `make test`, or those whose targets are named, or ``--all``; returns the exit status."""
    is_all = "--all" in arguments
    targets = [argument for argument in arguments if argument != "--all"]
    unknown = set(targets) - {suite.target for suite in SUITES}
    if unknown:
        print(f"nthbyte: no such suite: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    chosen = [
        suite for suite in SUITES if (suite.target in targets if targets else is_all or not suite.only_in_all)
    ]
    results = run_all(chosen, [os.environ.get("MAKE", "make"), "--no-print-directory"])
    for result in results:
        if result.failures:
            print(f"\n== {result.suite.name} failed", *result.failures, sep="\n")
    print(f"\n== All suites\n{table(results)}")
    return 0 if all(result.is_good for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
