"""Estimates against exact values.

``--every 1`` records each allocation and is exact. Each program runs twice with it, and then with many seeds and a period that
gives some thousands of samples. For every function with at least 1 % of the bytes, it counts how often the exact value lies
within the estimate's 95 % interval, and computes the distance between the exact value and the mean of the estimates. A correct
interval contains the exact value in about 95 of 100 cases; one that always does is too wide.

A program must allocate the same each time. So hashes of strings are fixed; the two exact runs show what still differs.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from statistics import fmean
from typing import Any

from evaluation import plot
from evaluation.experiment import Bench, Experiment, Raw
from evaluation.interpreters import PROGRAMS, SHORT, own, profiled
from evaluation.profile import summary
from evaluation.words import table

CHOSEN = ("pycparser_source", "lark_python", "html5lib_page")
SMALLEST_SHARE = 0.01
FIGURES = ("self_bytes", "total_bytes")
PERIOD = "64KiB"


def run(bench: Bench) -> Raw:
    """Measures the chosen programs."""
    seeds = 2 if bench.quick else 40
    programs: dict[str, Any] = {}
    raw = {"interpreter": own().name, "every": PERIOD, "seeds": seeds, "programs": programs}
    for script in [SHORT] if bench.quick else [PROGRAMS / f"{name}.py" for name in CHOSEN]:
        programs[script.stem] = _program(bench, script, seeds)
        bench.keep(raw)
    return raw


def _profile(bench: Bench, script: Path, every: str, seed: int = 1) -> Any:
    path = bench.folder / "out.nthb"
    # Of an option given twice, the last one counts.
    words = profiled(own(), path, [script.name], every, "--seed", str(seed))
    environment = own().environment() | {"PYTHONDONTWRITEBYTECODE": "1"}
    # Not on one core: what is measured here is bytes.
    done = subprocess.run(words, cwd=script.parent, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, words, done.stdout, done.stderr)
    return summary(path)


def by_function(found: Any) -> dict[tuple[str, str, int], Any]:
    """A summary's rows."""
    return {(row["name"], row["file"], row["line"]): row for row in found["rows"]}


def _program(bench: Bench, script: Path, seeds: int) -> dict[str, Any]:
    _profile(bench, script, "1")  # The first run compiles modules.
    exact, again = _profile(bench, script, "1"), _profile(bench, script, "1")
    sampled = [
        _profile(bench, script, PERIOD, seed)
        for seed in bench.track(range(1, seeds + 1), f"{script.stem}, seed")
    ]
    truth, repeated = by_function(exact), by_function(again)
    everything = exact["all"]["bytes"]["estimate"]
    functions = []
    for key, row in truth.items():
        for figure in FIGURES:
            value = row[figure]["estimate"]
            if value < SMALLEST_SHARE * everything:
                continue
            estimates = []
            for found in sampled:
                seen = by_function(found).get(key)
                interval = (
                    seen[figure] if seen else {"low": 0.0, "estimate": 0.0, "high": found["unlisted"]["high"]}
                )
                estimates.append([interval["low"], interval["estimate"], interval["high"]])
            functions.append(
                {
                    "name": key[0],
                    "file": os.path.basename(key[1]),
                    "figure": figure,
                    "exact": value,
                    "again": repeated[key][figure]["estimate"] if key in repeated else 0.0,
                    "estimates": estimates,
                }
            )
    return {
        "samples": fmean(found["samples"] for found in sampled),
        "exact": everything,
        "whole": [found["all"]["bytes"]["estimate"] for found in sampled],
        "functions": functions,
    }


def _held(functions: list[Any], figure: str) -> list[bool]:
    return [
        low <= each["exact"] <= high
        for each in functions
        if each["figure"] == figure
        for low, _, high in each["estimates"]
    ]


def _biases(functions: list[Any]) -> list[float]:
    return [fmean(estimate for _, estimate, _ in each["estimates"]) / each["exact"] - 1 for each in functions]


def lines(raw: Raw) -> list[str]:
    """The table of docs/exactness.md."""
    rows = []
    everywhere: list[Any] = []
    for name, each in raw["programs"].items():
        functions = each["functions"]
        everywhere += functions
        own_cases, total = (_held(functions, figure) for figure in FIGURES)
        rows.append(
            [
                name,
                f"{each['samples']:,.0f}",
                f"{len(own_cases) + len(total)}",
                f"{100 * fmean(own_cases):.1f}",
                f"{100 * fmean(total):.1f}",
                f"{fmean(each['whole']) / each['exact'] - 1:+.2%}",
                f"{max(_biases(functions), key=abs):+.2%}",
                f"{max(abs(one['again'] / one['exact'] - 1) for one in functions):.3%}",
            ]
        )
    own_cases, total = (_held(everywhere, figure) for figure in FIGURES)
    means = [f"**{100 * fmean(cases):.1f}**" for cases in (own_cases, total)]
    rows.append(["**all**", "", f"{len(own_cases) + len(total)}", *means, "", "", ""])
    head = ["program", "samples", "cases", "own", "total", "bias of the whole", "furthest bias"]
    return [
        f"{raw['interpreter']}, period {raw['every']}, {raw['seeds']} seeds. A *case* is one function with at least 1 % of all bytes, with one seed.",
        "",
        *table([*head, "two exact runs differ by"], rows),
        "",
        "*own, total*: the cases in 100 in which the exact value lies within the 95 % interval, for the bytes that the",
        "function allocated itself and for those with all that it called. *bias*: the mean of the estimates over the exact value,",
        "less 1: of the program as a whole, and of the function with the largest.",
    ]


def plots(raw: Raw) -> dict[str, str]:
    """The largest functions of one program: one run's intervals, and the truth."""
    name, each = next(iter(raw["programs"].items()))
    largest = sorted(
        (one for one in each["functions"] if one["figure"] == "self_bytes"), key=lambda one: -one["exact"]
    )[:14]
    rows = [
        (
            f"{one['name']} {one['file']}",
            *(value / (1 << 20) for value in (*one["estimates"][0], one["exact"])),
        )
        for one in largest
    ]
    title = f"{name}: estimates of one run with {raw['every']} (blue), and the exact values (orange)"
    return {"exactness": plot.intervals(title, rows, " MiB")}


EXPERIMENT = Experiment("exactness", "Estimates and the truth", run, lines, plots)
