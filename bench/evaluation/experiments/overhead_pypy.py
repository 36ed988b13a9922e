"""What nthbyte costs real programs on each PyPy, cold: whole processes, in which the JIT compiles most of the time."""

from __future__ import annotations

from evaluation.experiment import Bench, Experiment, Missing, Raw
from evaluation.experiments import overhead
from evaluation.interpreters import pypys

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
    """Tables like those of CPython."""
    return [
        f"Whole processes with a nursery of {overhead.NURSERY[:-1]} MiB. *Overhead against the period* has programs that are warm.",
        "",
        *overhead.lines_within(raw, BUDGETS),
    ]


def plots(raw: Raw) -> dict[str, str]:
    """CPU time of each program on the first PyPy, and the means."""
    return {name.replace("overhead", "overhead-pypy"): text for name, text in overhead.plots(raw).items()}


EXPERIMENT = Experiment("overhead-pypy", "Real programs on PyPy", run, lines, plots)
