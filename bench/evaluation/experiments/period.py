"""The period against the cost: the paper's Figures 8 and 10, on each CPython and PyPy.

On PyPy, runs happen inside of two processes that go on, after a warm-up. On CPython they are whole processes, which
include the start of nthbyte: a process has the heap of its first session until its end.
"""

from __future__ import annotations

from typing import Any

from evaluation import plot
from evaluation.experiment import Bench, Experiment, Raw
from evaluation.interpreters import BENCH, Interpreter, cpythons, profiled, pypys
from evaluation.pairs import PLAIN, Command, measure, measure_inside, of, plain, ratio
from evaluation.profile import summary
from evaluation.spread import Spread
from evaluation.words import period, spaced, table

PROGRAMS = ("gcbench", "loop", "tokens", "documents")
PERIODS = [32 << 10, 128 << 10, 512 << 10, 2 << 20, 8 << 20, 32 << 20]
# No allocation is sampled, but everything is in place.
NEVER = 1 << 40
NURSERY = "4M"
# The error of a pair, a hundredth of a run of half a second, divided by so many samples, is 2.5 µs.
FEW = 2000
# What part of a program CPython runs: about a second.
SHARES = {"gcbench": 0.2, "loop": 0.3, "tokens": 1.5, "documents": 1.5}
PROGRAM = BENCH / "evaluation" / "allocating.py"


def run(bench: Bench) -> Raw:
    """Measures each program with each interpreter."""
    programs = PROGRAMS[2:3] if bench.quick else PROGRAMS
    periods = PERIODS[:3:2] if bench.quick else PERIODS
    found: dict[str, Any] = {}
    raw: Raw = {"periods": periods, "nursery": NURSERY, "interpreters": found}
    those = [cpythons()[-1], *pypys()[:1]] if bench.quick else [*cpythons(), *pypys()]
    for version in {(3, minor) for minor in range(11, 16)} - {one.version for one in those}:
        if not bench.quick:
            bench.note(f"CPython {version[0]}.{version[1]} is not installed here.")
    if not pypys():
        bench.note("PyPy is not installed here.")
    for python, program in bench.track([(p, n) for p in those for n in programs], "periods"):
        on_it = _on_pypy if python.is_pypy else _on_cpython
        found.setdefault(python.name, {})[program] = on_it(bench, python, program, periods)
        bench.keep(raw)
    return raw


def _on_cpython(bench: Bench, python: Interpreter, program: str, periods: list[int]) -> dict[str, Any]:
    share = SHARES[program] / (4 if bench.quick else 1)
    words = [str(PROGRAM), program, str(share)]
    base = Command([python.path, *words], bench.folder)
    profiles = {str(size): bench.folder / f"{size}.nthb" for size in [*periods, NEVER]}
    variants = {
        key: Command(profiled(python, path, words, period(int(key))), bench.folder)
        for key, path in profiles.items()
    }
    pairs = measure(base, {**variants, PLAIN: base}, bench.rounds(2), python, warm=not bench.quick)
    counts = {key: summary(profiles[key], "--top", "1") for key in map(str, periods)}
    samples = {key: [each["samples"], each["lost"]] for key, each in counts.items()}
    return {
        "pairs": pairs,
        "samples": samples,
        "bytes": {key: profiles[key].stat().st_size for key in samples},
    }


def _on_pypy(bench: Bench, python: Interpreter, program: str, periods: list[int]) -> dict[str, Any]:
    settings = [*({"every": size} for size in [*periods, NEVER]), None]
    pairs = measure_inside(
        python,
        program,
        settings,
        bench.rounds(3),
        environment={"PYPY_GC_NURSERY": NURSERY},
        quick=bench.quick,
    )
    for pair in pairs:
        pair["variant"] = str(pair["variant"]["every"]) if pair["variant"] else PLAIN
    last = {key: of(pairs, key)[-1]["other"] for key in map(str, periods)}
    samples = {key: [each["samples"], each["lost"]] for key, each in last.items()}
    return {"pairs": pairs, "samples": samples, "bytes": {key: each["size"] for key, each in last.items()}}


def lines(raw: Raw) -> list[str]:
    """A table of ratios, and one of 32 KiB."""
    periods = raw["periods"]
    overhead, rates = [], []
    for python, programs in raw["interpreters"].items():
        for name, each in programs.items():
            pairs = each["pairs"]
            keys = [*map(str, periods), str(NEVER), PLAIN]
            overhead.append(
                [
                    python,
                    name,
                    f"{plain(pairs).median:.2f} s",
                    *(ratio(pairs, key).text() for key in keys),
                ]
            )
            least = str(periods[0])
            samples, lost = each["samples"][least]
            cost, seconds = ratio(pairs, least).median, plain(of(pairs, least)).median
            rate = samples / (seconds * cost)
            rates.append(
                [
                    python,
                    name,
                    f"{rate:,.0f}",
                    ratio(pairs, least).text(),
                    f"{1 + (cost - 1) / rate * 1000:.4f}",
                    _microseconds((cost - ratio(pairs, str(NEVER)).median) * seconds, samples),
                    f"{lost}",
                    f"{each['bytes'][least] / samples:.1f}",
                ]
            )
    head = ["interpreter", "program", "plain", *map(spaced, periods), "no sample", "control"]
    second = [
        "interpreter",
        "program",
        "samples/s",
        "overhead",
        "at 1000/s",
        "µs a sample",
        "lost",
        "bytes a sample",
    ]
    return [
        "CPU time over plain, by period (the paper's Figure 8). *No sample* has everything in place, with a period of 1 TiB.",
        "On CPython these are whole processes: each ratio has the start, which takes about 10 ms, a tenth of a program of 0.1 s.",
        f"PyPy's nursery is {raw['nursery'][:-1]} MiB, as the paper has it.",
        "",
        *table(head, overhead),
        "",
        f"At {spaced(periods[0])} (Figure 10). Overhead at 1000 samples a second is 1 + (overhead - 1) / (samples a second) · 1000; in the paper it",
        "is 1.05 to 1.12. Where CPython's allocator is the slower one, that is less than 1. *µs a sample* is what the samples cost over a run with no sample; few samples tell nothing.",
        "",
        *table(second, rates),
    ]


def _microseconds(cost: float, samples: int) -> str:
    """What each sample costs, if there are enough of them to be seen in the run's CPU time."""
    return f"{cost / samples * 1e6:.2f}" if samples >= FEW else "–"


def plots(raw: Raw) -> dict[str, str]:
    """A line for each interpreter: the mean of its programs."""
    ticks = [*map(spaced, raw["periods"]), "none"]
    keys = [*map(str, raw["periods"]), str(NEVER)]
    series: dict[str, list[float | None]] = {
        python: [
            Spread.of([ratio(each["pairs"], key).median for each in programs.values()]).median for key in keys
        ]
        for python, programs in raw["interpreters"].items()
    }
    return {"period": plot.lines("CPU time over plain, by period; median of the programs", ticks, series)}


EXPERIMENT = Experiment("period", "Overhead against the period", run, lines, plots)
