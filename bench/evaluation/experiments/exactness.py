"""Estimates against exact values.

``--every 1`` records each allocation and is exact. Each program runs once or twice with it, and then many times at the default, and
at two fixed periods. For each figure of each row, it counts how often the exact value lies within the estimate's 95 % interval,
and computes the distance between the exact value and the mean of the estimates. A correct interval contains the exact value in
about 95 of 100 cases; one that always does is too wide.

A program must allocate the same each time. So hashes of strings are fixed, and rows whose values differ between two exact runs by
more than 1 % are left out, with their number.

A row of which few samples are expected is mostly a row without any. What a report says of that one is what counts: the bound for what has
no sample. So every row of the exact run is a case, whether a run has seen it or not.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from evaluation import plot
from evaluation.experiment import Bench, Experiment, Raw
from evaluation.interpreters import BENCH, PROGRAMS, SHORT, own, profiled
from evaluation.profile import summary
from evaluation.words import table

HARD = BENCH / "evaluation" / "truth"
CHOSEN = (
    *(
        HARD / f"{name}.py"
        for name in ("burst_then_quiet", "giant_block_first", "quiet_service", "sawtooth", "threads")
    ),
    SHORT,
    *(PROGRAMS / f"{name}.py" for name in ("async_tree", "dataclass_orders", "pycparser_source")),
)
# How often each program runs with each period.
RUNS = {"auto": 40, "64KiB": 20, "512KiB": 20}
GROUPINGS = ("function", "line", "file", "type")
# The figures of a row: its name in the table, the member of the summary, and which sums its samples are of.
FIGURES = {
    "own": "self_bytes",
    "total": "total_bytes",
    "allocations": "allocations",
    "died young": "died_young",
    "survived": "survivors",
    "alive at the end": "still_live",
}
AT_PEAK = {"alive at the peak": "alive", "total at the peak": "total_alive"}
WHOLE = {
    "whole: bytes": "bytes",
    "whole: allocations": "allocations",
    "whole: died young": "died_young",
    "whole: alive at the end": "still_live",
}
# Expected numbers of samples.
FEW, SOME, MANY = "0.3 to 3", "3 to 10", "more"
# Two exact runs may differ by this part.
STEADY = 0.01


@dataclass
class Cases:
    """What became of the intervals of one kind of figure."""

    cases: int = 0
    below: int = 0
    """The truth is below the interval."""
    above: int = 0
    estimates: float = 0.0
    """Sums, of the figures in units of their truth."""

    def add(self, truth: float, low: float, estimate: float, high: float) -> None:
        """Counts a case."""
        # Figures are printed with some digits.
        slack = 1e-6 * truth + 0.5
        self.cases += 1
        self.below += truth < low - slack
        self.above += truth > high + slack
        self.estimates += estimate / truth

    def raw(self) -> list[float]:
        """As JSON has it."""
        return [self.cases, self.below, self.above, round(self.estimates, 3)]


@dataclass
class Found:
    """All kinds of one program and period, by figure, grouping and expected samples."""

    kinds: dict[tuple[str, str, str], Cases] = field(default_factory=dict)
    left_out: int = 0

    def add(self, key: tuple[str, str, str], truth: float, interval: Any) -> None:
        """Counts a case of a kind."""
        cases = self.kinds.setdefault(key, Cases())
        cases.add(truth, interval["low"], interval["estimate"], interval["high"])


def bin_of(expected: float) -> str | None:
    """The column of a row of which so many samples are expected; None if it has none."""
    if expected < 0.3:
        return None
    return FEW if expected < 3 else SOME if expected < 10 else MANY


def by_row(found: Any) -> dict[tuple[str, str, int], Any]:
    """A summary's rows."""
    return {(row["name"], row["file"], row["line"]): row for row in found["rows"]}


def summaries(profile: Path) -> dict[str, Any]:
    """The questions to a profile: each grouping, and the peak by function."""
    found = {by: summary(profile, "--by", by) for by in GROUPINGS}
    found["peak"] = summary(profile, "--by", "function", "--at", "peak")
    return found


def _value(row: Any, member: str) -> float:
    return float(row[member]["estimate"]) if row and row.get(member) else 0.0


def compare(exact: dict[str, Any], again: dict[str, Any] | None, runs: list[dict[str, Any]]) -> Found:
    """Counts the cases of the runs of one program with one period."""
    found = Found()
    parts = [(by, FIGURES, 1.0) for by in GROUPINGS] + [("peak", AT_PEAK, 2.0)]
    for by, figures, halves in parts:
        rows = [by_row(run[by]) for run in runs]
        repeated = by_row(again[by]) if again else None
        density = fmean(run[by]["samples"] / run[by]["all"]["bytes"]["estimate"] for run in runs)
        for key, row in by_row(exact[by]).items():
            seen = [each.get(key) for each in rows]
            # Samples for each byte of this row: of few, the whole program's.
            samples = fmean(one["samples"] if one else 0 for one in seen)
            own_bytes = _value(row, "self_bytes")
            each_byte = samples / own_bytes if samples >= 1 and own_bytes > 0 else density
            for figure, member in figures.items():
                truth = _value(row, member)
                if truth <= 0:
                    continue
                if repeated is not None and abs(_value(repeated.get(key), member) / truth - 1) > STEADY:
                    found.left_out += 1
                    continue
                is_count = member == "allocations"
                size = own_bytes if is_count else truth
                column = bin_of(size * (density if "total" in figure else each_byte) / halves)
                if column is None:
                    continue
                for run, one in zip(runs, seen, strict=True):
                    interval = one[member] if one else _nothing(run[by], is_count, halves)
                    found.add((figure, by, column), truth, interval)
    for run in runs:
        for figure, member in WHOLE.items():
            _whole(found, figure, exact["function"], run["function"], member)
        _whole(found, "whole: alive at the peak", exact["peak"], run["peak"], "alive")
    return found


def _whole(found: Found, figure: str, exact: Any, run: Any, member: str) -> None:
    truth = _value(exact["all"], member)
    if truth > 0:
        found.add((figure, "", MANY), truth, run["all"][member])


def _nothing(run: Any, is_count: bool, halves: float) -> Any:
    """What a report says of a row that it does not list."""
    bound = run["unlisted_allocations" if is_count else "unlisted"]["high"]
    return {"low": 0.0, "estimate": 0.0, "high": halves * bound}


def _profile(bench: Bench, script: Path, every: str, seed: int = 1) -> dict[str, Any]:
    path = bench.folder / "out.nthb"
    # Of an option given twice, the last one counts.
    words = profiled(own(), path, [script.name], every, "--seed", str(seed))
    if every == "auto":
        # The period depends on the program's speed, so no seed repeats a run.
        words = [word for word in words if word != "--seed" and not word.isdigit()]
    environment = own().environment() | {"PYTHONDONTWRITEBYTECODE": "1"}
    # Not on one core: bytes are measured here.
    done = subprocess.run(words, cwd=script.parent, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, words, done.stdout, done.stderr)
    return summaries(path)


def run(bench: Bench) -> Raw:
    """Measures the chosen programs."""
    programs: dict[str, Any] = {}
    raw: Raw = {"interpreter": own().name, "runs": RUNS, "programs": programs}
    for script in [SHORT] if bench.quick else CHOSEN:
        _profile(bench, script, "512KiB")  # The first run compiles modules.
        exact, again = _profile(bench, script, "1"), _profile(bench, script, "1")
        programs[script.stem] = {"exact": exact["function"]["all"]["bytes"]["estimate"], "periods": {}}
        for every, number in RUNS.items():
            wanted = range(1, (2 if bench.quick else bench.rounds(number)) + 1)
            runs = [
                _profile(bench, script, every, seed)
                for seed in bench.track(wanted, f"{script.stem} {every}, run")
            ]
            programs[script.stem]["periods"][every] = as_raw(compare(exact, again, runs), exact, runs)
            bench.keep(raw)
    return raw


def as_raw(found: Found, exact: dict[str, Any], runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of one program and period."""
    largest = sorted(by_row(exact["function"]).items(), key=lambda one: -_value(one[1], "self_bytes"))[:14]
    first = by_row(runs[0]["function"])
    nothing = _nothing(runs[0]["function"], False, 1.0)
    shown = [
        [
            f"{key[0]} {os.path.basename(key[1])}",
            *(first[key]["self_bytes"] if key in first else nothing).values(),
            row["self_bytes"]["estimate"],
        ]
        for key, row in largest
    ]
    periods = [run["function"]["periods"] for run in runs]
    return {
        "samples": fmean(run["function"]["samples"] for run in runs),
        "lost": sum(run["function"]["lost"] for run in runs),
        "ratio": max(max(each) / min(each) for each in periods),
        "left_out": found.left_out,
        "kinds": [[*key, *cases.raw()] for key, cases in sorted(found.kinds.items())],
        "first_run": shown,
    }


def _sums(raw: Raw, wanted: Any) -> Iterator[tuple[Any, list[float]]]:
    """The cases of all programs, summed by what ``wanted`` makes of (program, period, figure, grouping, expected)."""
    sums: dict[Any, list[float]] = {}
    for program, each in raw["programs"].items():
        for every, of in each["periods"].items():
            for figure, by, column, *numbers in of["kinds"]:
                key = wanted(program, every, figure, by, column)
                if key is not None:
                    known = sums.setdefault(key, [0.0] * len(numbers))
                    sums[key] = [one + more for one, more in zip(known, numbers, strict=True)]
    return iter(sums.items())


def _cell(numbers: list[float] | None) -> str:
    if not numbers or not numbers[0]:
        return "–"
    cases, below, above, _ = numbers
    return f"{100 * (1 - (below + above) / cases):.1f} of {cases:,.0f}"


def _grid(raw: Raw, name: str, wanted: Any, columns: list[str]) -> list[str]:
    """A table: its rows and columns are what ``wanted`` returns."""
    found = dict(_sums(raw, wanted))
    rows = list(dict.fromkeys(row for row, _ in found))
    return table(
        [name, *columns], [[row, *(_cell(found.get((row, column))) for column in columns)] for row in rows]
    )


def lines(raw: Raw) -> list[str]:
    """The tables of docs/exactness.md."""
    periods = list(raw["runs"])
    columns = [f"{every}, {column}" for every in periods for column in (FEW, SOME, MANY)]
    is_whole = lambda figure: figure.startswith("whole")  # noqa: E731

    def by_figure(_: str, every: str, figure: str, by: str, column: str) -> Any:
        return None if is_whole(figure) else (figure, f"{every}, {column}")

    def by_grouping(_: str, every: str, figure: str, by: str, column: str) -> Any:
        return None if is_whole(figure) else (by, f"{every}, {column}")

    def whole(_: str, every: str, figure: str, by: str, column: str) -> Any:
        return (figure.removeprefix("whole: "), every) if is_whole(figure) else None

    programs = []
    for name, each in raw["programs"].items():
        for every, of in each["periods"].items():
            sums = [
                numbers
                for *_, column, c, b, a, e in of["kinds"]
                if column != FEW
                for numbers in [(c, b, a, e)]
            ]
            total = [sum(numbers) for numbers in zip(*sums, strict=True)]
            own_few = [numbers for figure, _, _, *numbers in of["kinds"] if figure in ("whole: bytes",)]
            bias = own_few[0][3] / own_few[0][0] - 1 if own_few else 0.0
            programs.append(
                [
                    name,
                    every,
                    f"{of['samples']:,.0f}",
                    f"{of['ratio']:.0f}",
                    _cell(total) if total else "–",
                    f"{bias:+.2%}",
                    f"{of['lost']:,}",
                ]
            )
    return [
        f"{raw['interpreter']}; runs of each program: "
        + ", ".join(f"{number} at {every}" for every, number in raw["runs"].items())
        + ". A *case* is one figure of one row in one run; a cell says in how many of 100 cases the exact value lies within the 95 % interval,",
        "by the number of samples that are expected of the figure.",
        "",
        *_grid(raw, "figure of a row", by_figure, columns),
        "",
        *_grid(raw, "grouping", by_grouping, columns),
        "",
        *_grid(raw, "whole program", whole, periods),
        "",
        *table(
            ["program", "period", "samples", "longest over shortest", "3 and more expected", "bias", "lost"],
            programs,
        ),
        "",
        "*bias*: the mean of the estimates over the exact value, less 1, of all bytes of the program. *longest over shortest*: the",
        "largest ratio of two periods in one run; native memory has its own.",
    ]


def plots(raw: Raw) -> dict[str, str]:
    """The largest functions of one program: one run's intervals, and the truth."""
    name, each = next(iter(raw["programs"].items()))
    every, of = next(iter(each["periods"].items()))
    rows = [
        (what, *(value / (1 << 20) for value in (low, estimate, high, exact)))
        for what, estimate, low, high, exact in of["first_run"]
    ]
    title = f"{name}: estimates of one run at {every} (blue), and the exact values (orange)"
    return {"exactness": plot.intervals(title, rows, " MiB")}


EXPERIMENT = Experiment("exactness", "Estimates and the truth", run, lines, plots)
