"""Runs every suite of `make test`, even if others fail, and prints a table of the results.

A suite is a target of the Makefile. Its output is shown at once. The table at the end has a line for each suite:
its result, its time, and the counts of its runner.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

PASSED, FAILED, SKIPPED, NOT_RUN = "passed", "FAILED", "skipped", "NOT RUN"


@dataclass(frozen=True)
class Suite:
    """A target of the Makefile, and its name in the table."""

    name: str
    target: str
    needs: str | None = None
    """The name of a suite that this one needs."""


SUITES = (
    Suite("build", "all"),
    Suite("rustfmt", "check-rustfmt"),
    Suite("clippy", "check-clippy"),
    Suite("cargo test", "test-rust"),
    Suite("ruff", "check-ruff"),
    Suite("mypy", "check-mypy"),
    Suite("structure", "test-structure"),
    Suite("pytest CPython", "test-cpython", needs="build"),
    Suite("pytest formats", "test-formats", needs="build"),
    Suite("pytest processes", "test-processes", needs="build"),
    Suite("pytest native", "test-native", needs="build"),
    Suite("pytest PyPy", "test-pypy", needs="build"),
    Suite("pytest soak", "test-soak", needs="build"),
    Suite("bench", "test-bench", needs="build"),
    Suite("page", "test-page"),
    Suite("docs", "check-docs"),
    Suite("guide", "test-guide", needs="build"),
)


@dataclass(frozen=True)
class Result:
    """The result of a suite."""

    suite: Suite
    outcome: str
    seconds: float
    counts: str

    @property
    def is_good(self) -> bool:
        """Whether `make test` may succeed with it."""
        return self.outcome in (PASSED, SKIPPED)


def run_all(suites: Sequence[Suite], make: Sequence[str]) -> list[Result]:
    """Runs the suites one after the other. ``make`` is the command that takes a target."""
    results: list[Result] = []
    for suite in suites:
        missing = [result for result in results if result.suite.name == suite.needs and not result.is_good]
        if missing:
            results.append(Result(suite, NOT_RUN, 0, f"it needs: {suite.needs}"))
        else:
            print(f"\n== {suite.name}", flush=True)
            results.append(_run(suite, make))
    return results


def _run(suite: Suite, make: Sequence[str]) -> Result:
    start = time.monotonic()
    # Runners write no colours into a pipe, unless an option asks for them.
    colours = (
        {"CARGO_TERM_COLOR": "always", "PY_COLORS": "1", "FORCE_COLOR": "1"} if sys.stdout.isatty() else {}
    )
    process = subprocess.Popen(
        [*make, suite.target],
        env={**colours, **os.environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout
    lines = []
    for line in process.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        lines.append(re.sub(r"\x1b\[[0-9;]*m", "", line))
    status = process.wait()
    left_out = [line.strip() for line in lines if re.match(r"nthbyte: .* not tested; missing:", line)]
    outcome = FAILED if status else SKIPPED if left_out else PASSED
    return Result(suite, outcome, time.monotonic() - start, left_out[0] if left_out else counts(lines))


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


def table(results: Sequence[Result]) -> str:
    """Returns the results as text, a line for each suite."""
    width = max(len(result.suite.name) for result in results)
    return "\n".join(
        f"{result.suite.name:{width}}  {result.outcome:7}  {result.seconds:6.0f} s  {result.counts}".rstrip()
        for result in results
    )


def main(targets: Sequence[str]) -> int:
    """Runs the suites of the project, or those whose targets are named; returns the exit status."""
    unknown = set(targets) - {suite.target for suite in SUITES}
    if unknown:
        print(f"nthbyte: no such suite: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    chosen = [suite for suite in SUITES if not targets or suite.target in targets]
    results = run_all(chosen, [os.environ.get("MAKE", "make"), "--no-print-directory"])
    print(f"\n== All suites\n{table(results)}")
    return 0 if all(result.is_good for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
