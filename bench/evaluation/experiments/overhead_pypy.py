"""What nthbyte costs real programs on each PyPy, cold: whole processes, in which the JIT compiles most of the time."""

from __future__ import annotations

from statistics import geometric_mean, median

from evaluation.experiment import Bench, Experiment, Missing, Raw
from evaluation.experiments import overhead
from evaluation.interpreters import pypys
from evaluation.pairs import plain, ratio
from evaluation.words import table

# Seconds: what a session costs once is a large part of a program that takes less, and a small one of a program that takes twice as long.
LONG = 2.0
BUDGETS: overhead.Budgets = {"512KiB": (1.01, 0, 1.01), "32KiB": (0, 0, 1.10), "rss": (0, 0, 0)}


def run(bench: Bench) -> Raw:
    """Measures each program, and an empty one, on each PyPy."""
    those = pypys()[:1] if bench.quick else pypys()
    if not those:
        raise Missing("PyPy is not installed")
    raw: Raw = {"interpreters": {}}
    for python in bench.track(those, "interpreters"):
        overhead.measure_on(bench, python, bench.rounds(2), raw)
    return raw


def lines(raw: Raw) -> list[str]:
    """Tables like CPython's."""
    return [
        f"Whole processes with a nursery of {overhead.NURSERY[:-1]} MiB. *Overhead against the period* has programs that are warm.",
        "",
        *overhead.lines_within(raw, BUDGETS),
        "",
        "**What stands in the way.** A session costs a part of a second once, for its start and its end, on top of what it costs while the program runs. So programs that take longer pay less of their time:",
        "",
        *table(
            [
                "interpreter",
                "start",
                f"programs below {LONG:.0f} s",
                "CPU",
                "more CPU time, median",
                f"programs from {LONG:.0f} s on",
                "CPU",
            ],
            [
                [name, f"{overhead.start_ms(one):.0f} ms", *_by_length(one)]
                for name, one in raw["interpreters"].items()
            ],
        ),
    ]


def _by_length(one: Raw) -> list[str]:
    """The number of short programs, the mean of their ratios and their median difference; the same of long ones."""
    short, long = [], []
    for each in one["programs"].values():
        seconds = plain(each["pairs"]).median
        (short if seconds < LONG else long).append((seconds, ratio(each["pairs"], "512KiB").median))
    return [
        f"{len(short)}",
        f"{geometric_mean(those for _, those in short):.3f}" if short else "",
        f"{1000 * median(seconds * (those - 1) for seconds, those in short):.0f} ms" if short else "",
        f"{len(long)}",
        f"{geometric_mean(those for _, those in long):.3f}" if long else "",
    ]


def plots(raw: Raw) -> dict[str, str]:
    """CPU time of each program on the first PyPy, and the means."""
    return {name.replace("overhead", "overhead-pypy"): text for name, text in overhead.plots(raw).items()}


EXPERIMENT = Experiment("overhead-pypy", "Real programs on PyPy", run, lines, plots)
