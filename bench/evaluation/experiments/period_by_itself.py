"""``--every auto``, the default, beside 512 KiB: what it costs, and how much narrower the intervals are."""

from __future__ import annotations

from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from evaluation import plot
from evaluation.experiment import Bench, Experiment, Raw
from evaluation.interpreters import PROGRAMS, SCRIPT, SHORT, own, profiled, scripts
from evaluation.pairs import PLAIN, Command, measure, plain, ratio
from evaluation.profile import summary
from evaluation.words import bytes_text, mean_and_worst, table

AUTO = "auto"
FIXED = "512KiB"
# The CPU time that the period is chosen for, as a share of the program's.
TARGET = 0.005


def run(bench: Bench) -> Raw:
    """Measures each program."""
    rounds = bench.rounds(3)
    found: dict[str, Any] = {}
    raw = {"interpreter": own().name, "rounds": rounds, "programs": found}
    for script in bench.track([SHORT] if bench.quick else scripts(), "programs"):
        words = [str(script)]
        profiles = {every: bench.folder / f"{every}.nthb" for every in (FIXED, AUTO)}
        # A seed is for a period that does not change.
        auto = [
            own().path,
            str(SCRIPT),
            "run",
            "-q",
            "-f",
            "--every",
            AUTO,
            "-o",
            str(profiles[AUTO]),
            *words,
        ]
        base = Command([own().path, *words], PROGRAMS)
        variants = {
            FIXED: Command(profiled(own(), profiles[FIXED], words, FIXED), PROGRAMS),
            AUTO: Command(auto, PROGRAMS),
            PLAIN: base,
        }
        pairs = measure(base, variants, rounds, warm=not bench.quick)
        found[script.stem] = {"pairs": pairs, **{every: _seen(path) for every, path in profiles.items()}}
        bench.keep(raw)
    return raw


def _seen(profile: Path) -> dict[str, Any]:
    """Samples, bytes, and the half widths of the first ten rows' intervals, over their estimates."""
    found = summary(profile, "--top", "10")
    rows = [row["self_bytes"] for row in found["rows"]]
    widths = [(row["high"] - row["low"]) / 2 / row["estimate"] for row in rows if row["estimate"]]
    return {"samples": found["samples"], "bytes": profile.stat().st_size, "widths": widths}


def _more(pairs: Any) -> float:
    """The cost of auto beyond the fixed period."""
    return ratio(pairs, AUTO).median - ratio(pairs, FIXED).median


def lines(raw: Raw) -> list[str]:
    """The table."""
    cells, costs = [], []
    for name, each in raw["programs"].items():
        pairs = each["pairs"]
        costs.append(_more(pairs))
        cells.append(
            [
                name,
                f"{plain(pairs).median:.2f} s",
                *(ratio(pairs, key).text() for key in (FIXED, AUTO, PLAIN)),
                f"{each[FIXED]['samples']:,} → {each[AUTO]['samples']:,}",
                f"{bytes_text(each[FIXED]['bytes'])} → {bytes_text(each[AUTO]['bytes'])}",
                " → ".join(f"±{100 * median(each[every]['widths']):.0f} %" for every in (FIXED, AUTO)),
            ]
        )
    means = [
        f"**{geometric_mean(ratio(each['pairs'], key).median for each in raw['programs'].values()):.3f}**"
        for key in (FIXED, AUTO, PLAIN)
    ]
    cells.append(["**geometric mean**", "", *means, "", "", ""])
    head = [
        "program",
        "plain",
        "CPU 512 KiB",
        "CPU auto",
        "control",
        "samples",
        "file",
        "interval of the first ten rows",
    ]
    return [
        f"{raw['interpreter']}, {raw['rounds']} pair(s) of each kind. The interval is half its width over the estimate, the median of the ten functions with the most bytes.",
        f"*auto* begins with small periods and is to spend {100 * TARGET:.1f} % of the program's CPU time on samples; here it costs {100 * median(costs):+.1f} % beyond 512 KiB, in the median.",
        "",
        *table(head, cells),
    ]


def overview(raw: Raw) -> list[str]:
    """The interpreter, the number of programs, and the ratios of CPU time at the default: the mean, and the worst."""
    ratios = [ratio(each["pairs"], AUTO).median for each in raw["programs"].values()]
    return [raw["interpreter"], f"{len(ratios)}", mean_and_worst(geometric_mean(ratios), max(ratios))]


def plots(raw: Raw) -> dict[str, str]:
    """CPU time at both."""
    those = {
        name: {"512 KiB": ratio(each["pairs"], FIXED).median, "auto": ratio(each["pairs"], AUTO).median}
        for name, each in raw["programs"].items()
    }
    return {
        "auto": plot.bars("CPU time over plain, at 512 KiB and at a period that follows the program", those)
    }


EXPERIMENT = Experiment("auto", "The period by itself", run, lines, plots)
