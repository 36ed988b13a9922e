"""What time samples cost, at 100, 1000 and 2000 Hz: the paper's Figure 9, beside py-spy, VMProf and profiling.sampling.

There are almost no allocation samples (a period of 1 TiB). py-spy and profiling.sampling run in processes of their own; their CPU time counts.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evaluation import plot
from evaluation.experiment import Bench, Experiment, Raw
from evaluation.experiments.period import NEVER, NURSERY, PROGRAM, PROGRAMS, SHARES
from evaluation.interpreters import BENCH, SCRIPT, Interpreter, cpythons, own, profiled, pypys
from evaluation.pairs import PLAIN, Command, Failed, measure, measure_inside, ratio
from evaluation.spread import Spread
from evaluation.words import period, table

RATES = (100, 1000, 2000)
SPY = SCRIPT.parent / "py-spy"
VMPROF = BENCH / "evaluation" / "under" / "with_vmprof.py"


def run(bench: Bench) -> Raw:
    """Measures each program on PyPy and on CPython, with each tool and rate."""
    programs = PROGRAMS[2:3] if bench.quick else PROGRAMS
    rates = RATES[1:2] if bench.quick else RATES
    found: dict[str, Any] = {}
    raw = {"rates": rates, "interpreters": found}
    cases = [(python, name) for python in dict.fromkeys((own(), cpythons()[-1])) for name in programs]
    for python, name in bench.track(cases, "CPython"):
        pairs = _on_cpython(bench, python, name, rates)
        found.setdefault(python.name, {})[name] = pairs
        bench.keep(raw)
    for python, name in bench.track([(python, name) for python in pypys()[:1] for name in programs], "PyPy"):
        settings = [*({"every": NEVER, "cpu": rate} for rate in rates), None]
        environment = {"PYPY_GC_NURSERY": NURSERY}
        pairs = measure_inside(
            python, name, settings, bench.rounds(3), environment=environment, quick=bench.quick
        )
        for pair in pairs:
            pair["variant"] = f"nthbyte {pair['variant']['cpu']}" if pair["variant"] else PLAIN
        found.setdefault(python.name, {})[name] = pairs
        bench.keep(raw)
    return raw


def _installed(bench: Bench, python: Interpreter) -> list[str]:
    """The tools that can sample this interpreter."""
    tools = ["nthbyte"]
    if python == own():
        for tool, is_there in (("py-spy", SPY.exists()), ("VMProf", _has("vmprof"))):
            if is_there:
                tools.append(tool)
            else:
                bench.note(f"{tool} is not installed here.")
    if python.version >= (3, 15):
        tools.append("profiling.sampling")
    return tools


def _on_cpython(bench: Bench, python: Interpreter, name: str, rates: Sequence[int]) -> list[dict[str, Any]]:
    words = [str(PROGRAM), name, str(SHARES[name] / (2 if bench.quick else 1))]
    base = Command([python.path, *words], bench.folder)
    pairs = measure(base, {PLAIN: base}, bench.rounds(3), python, warm=not bench.quick)
    cases = [(tool, rate) for tool in _installed(bench, python) for rate in rates]
    for tool, rate in bench.track(cases, "rates"):
        # A file for each: nthbyte does not write over one of another tool.
        out = str(bench.folder / f"{tool}.out")
        sampler = ["-m", "profiling.sampling", "run", "--mode", "cpu", "-r", str(rate), "--collapsed"]
        commands = {
            "nthbyte": profiled(python, Path(out), words, period(NEVER), "--cpu", str(rate)),
            "py-spy": [
                str(SPY),
                "record",
                "-r",
                str(rate),
                "-f",
                "raw",
                "-o",
                out,
                "--",
                python.path,
                *words,
            ],
            "VMProf": [python.path, str(VMPROF), str(rate), out, *words],
            "profiling.sampling": [python.path, *sampler, "-o", out, *words],
        }
        command = Command(commands[tool], bench.folder)
        try:
            pairs += measure(base, {f"{tool} {rate}": command}, bench.rounds(3), python, warm=False)
        except Failed as error:
            printed = str(error).splitlines()[1:] or ["it prints nothing"]
            bench.note(f"{tool} fails on {name} at {rate} Hz: {printed[-1][:100]}.")
    return pairs


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _tools(pairs: list[Any]) -> list[str]:
    names = (pair["variant"].rsplit(" ", 1)[0] for pair in pairs if pair["variant"] != PLAIN)
    return list(dict.fromkeys(names))


def lines(raw: Raw) -> list[str]:
    """A row for each interpreter, program and tool."""
    rows = []
    for python, programs in raw["interpreters"].items():
        for name, pairs in programs.items():
            there = {pair["variant"] for pair in pairs}
            for tool in _tools(pairs):
                keys = [f"{tool} {rate}" for rate in raw["rates"]]
                cells = [ratio(pairs, key).text() if key in there else "–" for key in keys]
                rows.append([python, name, tool, *cells, ratio(pairs, PLAIN).text()])
    head = ["interpreter", "program", "tool", *(f"{rate} Hz" for rate in raw["rates"]), "control"]
    return [
        "CPU time over plain. On CPython these are whole processes, with the start; the kernel may allow fewer time samples a second than",
        "asked for. In the paper, 1000 Hz costs 1.1 and more. py-spy and `profiling.sampling` are processes beside the program's, whose CPU time",
        "counts; the next section compares the shares that they find.",
        "",
        *table(head, rows),
    ]


def plots(raw: Raw) -> dict[str, str]:
    """A line for each interpreter and tool: the median of the programs."""
    series: dict[str, list[float | None]] = {}
    for python, programs in raw["interpreters"].items():
        for tool in dict.fromkeys(tool for pairs in programs.values() for tool in _tools(pairs)):
            values: list[float | None] = []
            for rate in raw["rates"]:
                key = f"{tool} {rate}"
                those = [
                    ratio(pairs, key).median
                    for pairs in programs.values()
                    if any(pair["variant"] == key for pair in pairs)
                ]
                values.append(Spread.of(those).median if those else None)
            series[f"{tool}, {python}"] = values
    ticks = [f"{rate} Hz" for rate in raw["rates"]]
    return {
        "time-sampling": plot.lines("CPU time over plain, by rate; median of the programs", ticks, series)
    }


EXPERIMENT = Experiment("time-sampling", "Time sampling", run, lines, plots)
