"""What one time sample costs on CPython, and whether the shares of functions are right, beside py-spy and profiling.sampling."""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from evaluation.experiment import Bench, Experiment, Raw
from evaluation.interpreters import BENCH, SCRIPT, Interpreter, cpythons, own, profiled
from evaluation.pairs import Command, Failed, printed, run_together
from evaluation.probes.shares import SHARES
from evaluation.profile import summary
from evaluation.words import table

PROBES = BENCH / "evaluation" / "probes"


def run(bench: Bench) -> Raw:
    """Measures on the benchmarks' interpreter, and the shares on the newest one too, which has a sampler of its own."""
    raw: Raw = {"turns": bench.rounds(7), "interpreter": own().name}
    if platform.machine() == "x86_64":
        words = [own().path, str(PROBES / "signals.py"), str(raw["turns"])]
        raw["costs"] = printed(Command(words, bench.folder))
        raw["native"] = printed(Command([*words, "native"], bench.folder))
    else:
        bench.note("The cost of a time sample is measured on x86-64 only.")
    newest = cpythons()[-1:]
    raw["shares"] = {}
    for python in bench.track([own()] if bench.quick else [own(), *newest], "shares"):
        raw["shares"][python.name] = _shares(bench, python)
        bench.keep(raw)
    return raw


def _shares(bench: Bench, python: Interpreter) -> dict[str, dict[str, int]]:
    """The samples of each function, by tool."""
    program = [str(PROBES / "shares.py"), "0.5" if bench.quick else "5"]
    out = bench.folder / "shares.out"
    tools: dict[str, tuple[list[str], Callable[[Path], Counter[str]]]] = {
        "nthbyte": (profiled(python, out, program, "1TiB", "--cpu"), _of_nthbyte)
    }
    spy = SCRIPT.parent / "py-spy"
    if spy.exists() and python.tree is None:
        words = ["record", "--format", "raw", "-o", str(out), "--", python.path, *program]
        tools["py-spy"] = ([str(spy), *words], _of_collapsed)
    if python.version >= (3, 15):
        words = ["-m", "profiling.sampling", "run", "--mode", "cpu", "--collapsed", "-o", str(out), *program]
        tools["profiling.sampling"] = ([python.path, *words], _of_collapsed)
    found = {}
    for name, (words, counts) in tools.items():
        out.unlink(missing_ok=True)
        try:
            run_together([Command(words, bench.folder)], python)
            found[name] = dict(counts(out))
        except Failed as error:
            bench.note(f"{name} fails on {python.name}: {str(error).splitlines()[-1][:100]}.")
    return found


def _of_nthbyte(profile: Path) -> Counter[str]:
    rows = summary(profile, "--top", "1000")["time"]["rows"]
    return Counter({row["name"]: row["total_samples"] for row in rows if row["name"] in SHARES})


def _of_collapsed(path: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for line in path.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        for name in SHARES:
            if re.search(rf"(?<![\w.]){name}(?!\w)", stack):
                counts[name] += int(count)
    return counts


def lines(raw: Raw) -> list[str]:
    """A table of costs, and one of shares for each interpreter."""
    text = []
    if "costs" in raw:
        text += [
            f"One time sample on {raw['interpreter']}, beyond the same signal without a session; the least of {raw['turns']} turns. *With the writer thread*: CPU time of",
            "the process. Each kilobyte of frames is one read through the kernel: that is most of the cost of a deep stack.",
            "",
            *_costs(raw["costs"]),
            "",
        ]
    if "native" in raw:
        text += [
            "The same with native frames (`--native-frames`), of which there are about thirty: the handler has the kernel copy the stack of native code, and the writer thread walks the copy.",
            "",
            *_costs(raw["native"]),
            "",
        ]
    text += [
        "The shares of functions whose true shares are known. Of *n* samples, a share of 25 % has a standard deviation of 43 % / √*n*: 1.9 % of 500, 1.1 % of 1,600. py-spy and",
        "`profiling.sampling` (in CPU time) run beside the program and sample it by the clock on the wall, so a loaded machine gives them more samples of the same time.",
    ]
    for python, tools in raw["shares"].items():
        rows = [
            [
                f"`{name}`",
                f"{share} %",
                *(f"{100 * counts.get(name, 0) / sum(counts.values()):.1f} %" for counts in tools.values()),
            ]
            for name, share in SHARES.items()
        ]
        rows.append(["samples", "", *(f"{sum(counts.values()):,}" for counts in tools.values())])
        text += ["", f"{python}:", "", *table(["function", "true share", *tools], rows)]
    return text


def _costs(costs: dict[str, list[float]]) -> list[str]:
    return table(
        ["frames", "handler", "with the writer thread", "at 1,000 a second"],
        [
            [f"{depth}", f"{handler:.1f} µs", f"{both:.1f} µs", f"{both / 10:.2f} %"]
            for depth, (handler, both) in costs.items()
        ],
    )


EXPERIMENT = Experiment("time-samples", "One time sample, and the shares", run, lines)
