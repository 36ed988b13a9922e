"""What the programs allocate, and how fast: the paper's Figure 11. Without sampling, but for the run that counts bytes."""

from __future__ import annotations

from typing import Any

from evaluation.experiment import Bench, Experiment, Raw
from evaluation.experiments import period
from evaluation.interpreters import PROGRAMS, SHORT, Interpreter, own, profiled, pypys, scripts
from evaluation.pairs import Command, measure_inside, run_together
from evaluation.profile import summary
from evaluation.spread import Spread
from evaluation.words import table


def run(bench: Bench) -> Raw:
    """Measures the programs of `period` on CPython and PyPy, and the real ones."""
    rows: list[dict[str, Any]] = []
    names = period.PROGRAMS[2:3] if bench.quick else period.PROGRAMS
    real = [SHORT] if bench.quick else scripts()
    cases = [
        [str(period.PROGRAM), name, str(period.SHARES[name] / (4 if bench.quick else 1))] for name in names
    ] + [[str(path)] for path in real]
    for words in bench.track(cases, "CPython"):
        rows.append(_whole(bench, own(), words))
    for python, name in bench.track([(python, name) for python in pypys()[:1] for name in names], "PyPy"):
        environment = {"PYPY_GC_NURSERY": period.NURSERY}
        pairs = measure_inside(
            python, name, [{"every": 512 << 10}], 1, environment=environment, quick=bench.quick
        )
        rows.append(
            {
                "interpreter": python.name,
                "program": name,
                "seconds": [pair["plain"]["cpu"] for pair in pairs],
                "allocated": pairs[-1]["other"]["allocated"],
            }
        )
    return {"rows": rows}


def _whole(bench: Bench, python: Interpreter, words: list[str]) -> dict[str, Any]:
    profile = bench.folder / "out.nthb"
    base = Command([python.path, *words], PROGRAMS)
    counted = Command(profiled(python, profile, words), PROGRAMS)
    if not bench.quick:
        run_together([base, base], python)
    used = [each["cpu"] for _ in range(bench.rounds(2)) for each in run_together([base, base], python)]
    run_together([counted], python)
    name = words[1] if len(words) > 1 else words[0].rsplit("/", 1)[1].removesuffix(".py")
    allocated = summary(profile, "--top", "1")["all"]["bytes"]["estimate"]
    return {"interpreter": python.name, "program": name, "seconds": used, "allocated": allocated}


def lines(raw: Raw) -> list[str]:
    """The table."""
    rows = []
    for row in raw["rows"]:
        seconds, gigabytes = Spread.of(row["seconds"]), row["allocated"] / 1e9
        rows.append(
            [
                row["interpreter"],
                row["program"],
                f"{seconds.median:.2f} s ({seconds.low:.2f}–{seconds.high:.2f})",
                f"{gigabytes:.2f} GB",
                f"{gigabytes / seconds.median:.2f}",
            ]
        )
    return [
        "CPU time of plain runs, and what the allocator or the collector counted (on CPython, what was asked of Python's allocators: an",
        "estimate from samples; on PyPy its own count). The paper's programs allocate 0.6 to 6.1 GB/s.",
        "",
        *table(["interpreter", "program", "time", "allocated", "GB/s"], rows),
    ]


EXPERIMENT = Experiment("statistics", "Memory statistics", run, lines)
