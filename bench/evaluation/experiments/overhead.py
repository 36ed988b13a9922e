"""What nthbyte costs real programs on each CPython: CPU time and peak RSS at 512 KiB and 32 KiB, and a start."""

from __future__ import annotations

from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from evaluation import plot
from evaluation.experiment import Bench, Experiment, Raw
from evaluation.interpreters import PROGRAMS, SHORT, Interpreter, cpythons, own, profiled, scripts
from evaluation.pairs import PLAIN, Command, Failed, measure, plain, ratio, rss, run_together
from evaluation.profile import summary
from evaluation.words import table

PERIODS = ("512KiB", "32KiB")
VARIANTS = (*PERIODS, PLAIN)
NURSERY = "4M"
# Of the mean, of the slower half, and of the worst program; 0 is no budget.
Budgets = dict[str, tuple[float, float, float]]
BUDGETS: Budgets = {"512KiB": (0.97, 0.99, 1.02), "32KiB": (1.02, 0, 1.05), "rss": (1.03, 0, 1.06)}


def run(bench: Bench) -> Raw:
    """Measures each program, and an empty one, on each CPython."""
    raw: Raw = {"interpreters": {}}
    here = own()
    others = [] if bench.quick else [one for one in cpythons() if one.name != here.name]
    for python in bench.track([here, *others], "interpreters"):
        # The others show whether the means hold everywhere: with one pair of each program, a mean of 25 is good to 0.3 %.
        measure_on(bench, python, bench.rounds(3 if python is here else 1), raw)
    return raw


def measure_on(bench: Bench, python: Interpreter, rounds: int, raw: Raw) -> None:
    """Measures each program on an interpreter, and adds what it finds to raw results."""
    start = _program(bench, python, ["-c", "pass"], bench.rounds(3 * rounds))
    programs: dict[str, Any] = {}
    raw["interpreters"][python.name] = {"rounds": rounds, "start": start["pairs"], "programs": programs}
    for script in bench.track([SHORT] if bench.quick else scripts(), "programs"):
        if not _runs(python, script):
            bench.note(f"{script.stem} does not run on {python.name}, which lacks a package of it.")
            continue
        programs[script.stem] = _program(bench, python, [str(script)], rounds)
        bench.keep(raw)


def _runs(python: Interpreter, script: Path) -> bool:
    """Whether a program runs without nthbyte: packages with machine code are this interpreter's."""
    try:
        run_together([_plain(python, [str(script)])], python)
    except Failed:
        if python is own():
            raise
        return False
    return True


def _plain(python: Interpreter, program: list[str]) -> Command:
    return Command([python.path, *program], PROGRAMS, _environment(python))


def _environment(python: Interpreter) -> dict[str, str]:
    """PyPy's nursery is as large as the paper's; by default, its size follows the processor's cache."""
    return {"PYPY_GC_NURSERY": NURSERY} if python.is_pypy else {}


def _program(bench: Bench, python: Interpreter, program: list[str], rounds: int) -> dict[str, Any]:
    profiles = {every: bench.folder / f"{every}.nthb" for every in PERIODS}
    commands = {
        every: Command(profiled(python, path, program, every), PROGRAMS, _environment(python))
        for every, path in profiles.items()
    }
    base = _plain(python, program)
    pairs = measure(base, {**commands, PLAIN: base}, rounds, python, warm=not bench.quick)
    samples = {every: summary(path, "--top", "1") for every, path in profiles.items()}
    return {
        "pairs": pairs,
        "samples": {every: each["samples"] for every, each in samples.items()},
        "lost": sum(each["lost"] for each in samples.values()),
        "bytes": {every: path.stat().st_size for every, path in profiles.items()},
    }


def rows(one: Raw) -> dict[str, dict[str, float]]:
    """The ratios of each program of an interpreter, by column."""
    found = {}
    for name, each in one["programs"].items():
        pairs = each["pairs"]
        found[name] = {variant: ratio(pairs, variant).median for variant in VARIANTS}
        found[name] |= {f"rss {every}": rss(pairs, every) for every in PERIODS}
        found[name]["bytes a sample"] = each["bytes"]["32KiB"] / max(1, each["samples"]["32KiB"])
    return found


def mean(ratios: dict[str, dict[str, float]], column: str) -> float:
    """The geometric mean of the programs."""
    return geometric_mean(row[column] for row in ratios.values())


def slower_half(ratios: dict[str, dict[str, float]], column: str) -> float:
    """The geometric mean of the half of the programs that gains least."""
    values = sorted(row[column] for row in ratios.values())
    return geometric_mean(values[len(values) // 2 :])


def worst(ratios: dict[str, dict[str, float]], column: str) -> float:
    """The largest of the programs."""
    return max(row[column] for row in ratios.values())


def start_ms(one: Raw) -> float:
    """Milliseconds of CPU that a start takes more than a plain one."""
    those = [pair for pair in one["start"] if pair["variant"] == "512KiB"]
    return 1000 * median(pair["other"]["cpu"] - pair["plain"]["cpu"] for pair in those)


def lines(raw: Raw) -> list[str]:
    """A table of the interpreters, and one of the programs for each of them."""
    return lines_within(raw, BUDGETS)


def lines_within(raw: Raw, budgets: Budgets) -> list[str]:
    """The same for other budgets."""
    text = means(raw)
    for name, one in raw["interpreters"].items():
        text += ["", f"### {name}", "", *_programs(one), *_budget(rows(one), budgets)]
    return text


def means(raw: Raw) -> list[str]:
    """A row for each interpreter."""
    return [
        "CPU time and peak RSS with nthbyte, divided by those of plain runs; geometric means over the programs. *Slower half* is the mean of the half of the programs that",
        "gains least. *Start* is how much more CPU time `python -c pass` takes. All interpreters use the packages of one virtual environment: extension modules there are for its own CPython, and the others use what a package has in Python.",
        "",
        *table(
            [
                "interpreter",
                "programs",
                "pairs",
                *(
                    f"CPU {of}{what}"
                    for of in ("512 KiB", "32 KiB")
                    for what in ("", ", slower half", ", worst")
                ),
                "control",
                *(f"peak RSS {of}{what}" for of in ("512 KiB", "32 KiB") for what in ("", ", worst")),
                "start",
            ],
            [_means(name, one) for name, one in raw["interpreters"].items()],
        ),
    ]


def _means(name: str, one: Raw) -> list[str]:
    ratios = rows(one)
    cells = [name, f"{len(ratios)}", f"{one['rounds']}"]
    for every in PERIODS:
        cells += [
            f"**{mean(ratios, every):.3f}**",
            f"{slower_half(ratios, every):.3f}",
            f"{worst(ratios, every):.3f}",
        ]
    cells.append(f"{mean(ratios, PLAIN):.3f}")
    for every in PERIODS:
        cells += [f"{mean(ratios, f'rss {every}'):.3f}", f"{worst(ratios, f'rss {every}'):.3f}"]
    return [*cells, f"{start_ms(one):.0f} ms"]


def _programs(one: Raw) -> list[str]:
    cells = []
    ratios = rows(one)
    for name, each in one["programs"].items():
        pairs = each["pairs"]
        cells.append(
            [
                name,
                f"{plain(pairs).median:.2f} s",
                *(ratio(pairs, variant).text() for variant in VARIANTS),
                *(f"{ratios[name][f'rss {every}']:.3f}" for every in PERIODS),
                f"{each['samples']['32KiB']:,}",
                f"{ratios[name]['bytes a sample']:.1f}",
            ]
        )
    head = ["program", "plain", "CPU 512 KiB", "CPU 32 KiB", "control", "peak RSS 512 KiB", "peak RSS 32 KiB"]
    return table([*head, "samples at 32 KiB", "bytes a sample"], cells)


def _budget(ratios: dict[str, dict[str, float]], budgets: Budgets) -> list[str]:
    """What falls short of the budgets that nthbyte sets itself."""
    short = []
    for column, (most, half, largest), what in (
        ("512KiB", budgets["512KiB"], "CPU at 512 KiB"),
        ("32KiB", budgets["32KiB"], "CPU at 32 KiB"),
        ("rss 512KiB", budgets["rss"], "peak RSS at 512 KiB"),
    ):
        for limit, value, name in (
            (most, mean(ratios, column), "mean"),
            (half, slower_half(ratios, column), "slower half"),
            (largest, worst(ratios, column), "worst"),
        ):
            if limit and value > limit:
                short.append(f"{what}, {name}: {value:.3f}, to be at most {limit:.2f}")
    return ["", "**Over budget**: " + "; ".join(short) + "." if short else "All within the budgets."]


def plots(raw: Raw) -> dict[str, str]:
    """CPU time of each program on the first interpreter, and the means of all."""
    first = rows(next(iter(raw["interpreters"].values())))
    programs = {
        name: {"512 KiB": row["512KiB"], "32 KiB": row["32KiB"], "control": row[PLAIN]}
        for name, row in first.items()
    }
    means = {
        name: {
            "512 KiB": mean(those, "512KiB"),
            "32 KiB": mean(those, "32KiB"),
            "control": mean(those, PLAIN),
        }
        for name, one in raw["interpreters"].items()
        if (those := rows(one))
    }
    return {
        "overhead": plot.bars("CPU time of real programs, over plain", programs),
        "overhead-interpreters": plot.bars("CPU time over plain: geometric mean of real programs", means),
    }


EXPERIMENT = Experiment("overhead", "Real programs on CPython", run, lines, plots)
