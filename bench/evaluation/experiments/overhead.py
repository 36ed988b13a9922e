"""What nthbyte costs real programs: CPU time and peak RSS at 512 KiB and 32 KiB, and a start."""

from __future__ import annotations

from statistics import geometric_mean, median
from typing import Any

from evaluation import plot
from evaluation.experiment import Bench, Experiment, Raw
from evaluation.interpreters import PROGRAMS, own, profiled, scripts
from evaluation.pairs import PLAIN, Command, measure, plain, ratio, rss
from evaluation.profile import summary
from evaluation.words import table

PERIODS = ("512KiB", "32KiB")
VARIANTS = (*PERIODS, PLAIN)
BUDGETS = {"512KiB": (0.97, 1.02), "32KiB": (1.02, 1.05), "rss": (1.03, 1.06)}


def run(bench: Bench) -> Raw:
    """Measures each program, and an empty one."""
    rounds = bench.rounds(3)
    programs = scripts(["pycparser_source"] if bench.quick else None)
    start = _program(bench, ["-c", "pass"], 3 * rounds)
    found: dict[str, Any] = {}
    raw = {"interpreter": own().name, "rounds": rounds, "start": start["pairs"], "programs": found}
    for script in bench.track(programs, "programs"):
        found[script.stem] = _program(bench, [str(script)], rounds)
        bench.keep(raw)
    return raw


def _program(bench: Bench, program: list[str], rounds: int) -> dict[str, Any]:
    python = own()
    profiles = {every: bench.folder / f"{every}.nthb" for every in PERIODS}
    commands = {
        every: Command(profiled(python, path, program, every), PROGRAMS) for every, path in profiles.items()
    }
    base = Command([python.path, *program], PROGRAMS)
    pairs = measure(base, {**commands, PLAIN: base}, rounds)
    samples = {every: summary(path, "--top", "1") for every, path in profiles.items()}
    return {
        "pairs": pairs,
        "samples": {every: each["samples"] for every, each in samples.items()},
        "lost": sum(each["lost"] for each in samples.values()),
        "bytes": {every: path.stat().st_size for every, path in profiles.items()},
    }


def rows(raw: Raw) -> dict[str, dict[str, float]]:
    """The ratios of each program, by column."""
    found = {}
    for name, each in raw["programs"].items():
        pairs = each["pairs"]
        found[name] = {variant: ratio(pairs, variant).median for variant in VARIANTS}
        found[name] |= {f"rss {every}": rss(pairs, every) for every in PERIODS}
        found[name]["bytes a sample"] = each["bytes"]["32KiB"] / max(1, each["samples"]["32KiB"])
    return found


def start_ms(raw: Raw) -> float:
    """Milliseconds of CPU that a start takes more than a plain one."""
    those = [pair for pair in raw["start"] if pair["variant"] == "512KiB"]
    return 1000 * median(pair["other"]["cpu"] - pair["plain"]["cpu"] for pair in those)


def lines(raw: Raw) -> list[str]:
    """The table of docs/performance.md."""
    cells = []
    ratios = rows(raw)
    for name, each in raw["programs"].items():
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
    columns = [*VARIANTS, *(f"rss {every}" for every in PERIODS)]
    means = [f"**{geometric_mean(row[column] for row in ratios.values()):.3f}**" for column in columns]
    worst = [f"{max(row[column] for row in ratios.values()):.3f}" for column in columns]
    sizes = [row["bytes a sample"] for row in ratios.values()]
    cells.append(["**geometric mean**", "", *means, "", f"{geometric_mean(sizes):.1f}"])
    cells.append(["worst", "", *worst, "", f"{max(sizes):.1f}"])
    head = ["program", "plain", "CPU 512 KiB", "CPU 32 KiB", "control", "peak RSS 512 KiB", "peak RSS 32 KiB"]
    return [
        f"{raw['interpreter']}, {raw['rounds']} pair(s) of each kind. Ratios: profiled to plain.",
        "",
        *table([*head, "samples at 32 KiB", "bytes a sample"], cells),
        "",
        f"Start: {start_ms(raw):.0f} ms of CPU time more than `python -c pass`.",
        *_budget(ratios),
    ]


def _budget(ratios: dict[str, dict[str, float]]) -> list[str]:
    """What falls short of the budgets that nthbyte sets itself."""
    short = []
    for column, key, what in (
        ("512KiB", "512KiB", "CPU at 512 KiB"),
        ("32KiB", "32KiB", "CPU at 32 KiB"),
        ("rss 512KiB", "rss", "peak RSS at 512 KiB"),
    ):
        values = [row[column] for row in ratios.values()]
        for limit, value, name in zip(BUDGETS[key], (geometric_mean(values), max(values)), ("mean", "worst")):
            if value > limit:
                short.append(f"{what}, {name}: {value:.3f}, to be at most {limit:.2f}")
    if not short:
        return [
            "",
            "Within the budgets: CPU 0.97 (worst 1.02) at 512 KiB, 1.02 (1.05) at 32 KiB; peak RSS 1.03 (1.06).",
        ]
    return ["", "**Over budget**: " + "; ".join(short) + "."]


def plots(raw: Raw) -> dict[str, str]:
    """CPU time of each program."""
    those = {
        name: {"512 KiB": row["512KiB"], "32 KiB": row["32KiB"], "control": row[PLAIN]}
        for name, row in rows(raw).items()
    }
    return {"overhead": plot.bars("CPU time of real programs, over plain", those)}


EXPERIMENT = Experiment("overhead", "Real programs on CPython", run, lines, plots)
