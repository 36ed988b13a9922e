"""What one allocation sample costs on each CPython: ``probes/sample.py``, inside of one process."""

from __future__ import annotations

from typing import Any

from evaluation.experiment import Bench, Experiment, Raw
from evaluation.interpreters import BENCH, cpythons, own
from evaluation.pairs import Command, printed
from evaluation.words import spaced_word, table

PROBE = BENCH / "evaluation" / "probes" / "sample.py"
DEPTH = 20


def run(bench: Bench) -> Raw:
    """Measures on each CPython."""
    turns = bench.rounds(15)
    here = own()
    others = [] if bench.quick else [one for one in cpythons() if one.name != here.name]
    found: dict[str, Any] = {}
    raw = {"turns": turns, "interpreters": found}
    for python in bench.track([here, *others], "interpreters"):
        found[python.name] = printed(Command([python.path, str(PROBE), str(turns)], bench.folder), python)
        bench.keep(raw)
    return raw


def lines(raw: Raw) -> list[str]:
    """A row for each interpreter and pattern."""
    rows = []
    periods: list[str] = []
    for python, patterns in raw["interpreters"].items():
        for pattern, costs in patterns.items():
            periods = list(costs)
            rows.append([python, pattern, *(f"{nanos:.0f} ns" for nanos in costs.values())])
    return [
        f"A sample on a stack of {DEPTH} frames: the allocation's slow path, the walk, the record and the free, in CPU time of the thread; the least of {raw['turns']} turns.",
        "",
        *table(["interpreter", "allocations", *map(spaced_word, periods)], rows),
    ]


EXPERIMENT = Experiment("one-sample", "One sample", run, lines)
