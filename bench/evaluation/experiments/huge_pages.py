"""Huge pages under small objects: the nine programs of CPython's issue 144319, which wants them for CPython's allocator."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from evaluation import plot
from evaluation.experiment import Bench, Experiment, Missing, Raw
from evaluation.interpreters import BENCH, Interpreter, cpythons, profiled
from evaluation.objects import PROGRAMS
from evaluation.pairs import PLAIN, Command, measure, of, plain, ratio
from evaluation.spread import Spread
from evaluation.words import table

PROGRAM = BENCH / "evaluation" / "objects.py"
NEVER = "1TiB"
PROFILED = "512 KiB"
VERSIONS = ((3, 13), (3, 15))
# CPython 3.15 takes this variable: its own huge pages, from the system's pool.
OWN_VARIABLE = "PYTHON_PYMALLOC_HUGEPAGES"
OWN = "CPython's, hugetlb"
# What the issue measured with CPython's allocator and huge pages: 1 less the gain.
ISSUE = {
    "list_of_tuples": 0.705,
    "fragmentation": 0.735,
    "mixed_sizes": 0.749,
    "bulk_small_alloc": 0.779,
    "class_instances": 0.80,
    "arena_pressure": 0.879,
    "random_walk": 0.924,
}
POOL = Path("/proc/sys/vm/nr_hugepages")
# In some virtual machines: free memory of 2 to this power pages is given back to the host.
REPORTED_ORDER = Path("/sys/module/page_reporting/parameters/page_reporting_order")
HUGE_ORDER = 9
# Huge pages of 2 MiB that the largest of the programs needs.
NEEDED = 512


def run(bench: Bench) -> Raw:
    """Measures each program with each kind of page."""
    those = [one for one in cpythons() if one.version in VERSIONS]
    if not those:
        raise Missing("CPython 3.13 and 3.15 are not installed; `make interpreters TREES=sid` gets them")
    those = those[-1:] if bench.quick else those
    pool = int(POOL.read_text()) if POOL.exists() else 0
    if pool < NEEDED:
        bench.note(f"hugetlb is not measured: `sysctl vm.nr_hugepages={NEEDED}` reserves the pages.")
    if REPORTED_ORDER.exists() and 0 <= int(REPORTED_ORDER.read_text()) <= HUGE_ORDER:
        bench.note(
            f"This virtual machine gives free huge pages back to its host, which makes the next use of each ten times as long. `echo {HUGE_ORDER + 1} > {REPORTED_ORDER}` ends that."
        )
    names = ["list_of_tuples"] if bench.quick else list(PROGRAMS)
    found: dict[str, dict[str, Any]] = {}
    raw = {"interpreters": found}
    for python, name in bench.track([(python, name) for python in those for name in names], "pages"):
        base, variants = _commands(bench, python, name, pool >= NEEDED)
        pairs = measure(base, variants, bench.rounds(4), python, warm=not bench.quick)
        found.setdefault(python.name, {})[name] = {"pairs": pairs}
        bench.keep(raw)
    return raw


def _commands(bench: Bench, python: Interpreter, name: str, pool: bool) -> tuple[Command, dict[str, Command]]:
    words = [str(PROGRAM), name]

    def under(every: str, kind: str) -> Command:
        out = bench.folder / f"{kind}.nthb"
        return Command(profiled(python, out, words, every, "--huge-pages", kind), bench.folder)

    base = Command([python.path, *words], bench.folder)
    variants = {"off": under(NEVER, "off"), "thp": under(NEVER, "thp"), PROFILED: under("512KiB", "thp")}
    if pool:
        variants |= {"hugetlb": under(NEVER, "hugetlb"), f"{PROFILED}, hugetlb": under("512KiB", "hugetlb")}
        if python.version >= (3, 15):
            variants[OWN] = Command(base.words, bench.folder, {OWN_VARIABLE: "1"})
    return base, {**variants, PLAIN: base}


def lines(raw: Raw) -> list[str]:
    """A table of CPU time and one of page faults for each interpreter."""
    text = [
        "The programs are those of CPython's issue 144319. CPU time over plain, whole processes, their start included; garbage collection is off, as in the issue. *Off*, *thp* and *hugetlb* are the pages of nthbyte's",
        f"allocator, with a period of {NEVER}, so that nothing is sampled; *{PROFILED}* has transparent huge pages, as by default, and samples. *Issue* is what its author",
        "measured of CPython's allocator on 2 MiB pages, on another machine.",
    ]
    for python, programs in raw["interpreters"].items():
        keys = _keys(programs)
        rows = []
        for name, each in programs.items():
            pairs = each["pairs"]
            rows.append(
                [
                    name,
                    f"{plain(pairs).median:.3f} s",
                    *(ratio(pairs, key).text() for key in keys),
                    f"{ISSUE[name]:.3f}" if name in ISSUE else "",
                ]
            )
        means = [
            f"**{geometric_mean(ratio(each['pairs'], key).median for each in programs.values()):.3f}**"
            for key in keys
        ]
        rows.append(["**geometric mean**", "", *means, f"**{geometric_mean(ISSUE.values()):.3f}**"])
        heads = ["control" if key == PLAIN else key for key in keys]
        faults = [
            [
                name,
                f"{_faults(each['pairs'], keys[0], 'plain'):,.0f}",
                *(f"{_faults(each['pairs'], key, 'other'):,.0f}" for key in keys[:-1]),
            ]
            for name, each in programs.items()
        ]
        text += ["", f"{python}:", "", *table(["program", "plain", *heads, "issue"], rows)]
        text += ["", "Page faults:", "", *table(["program", "plain", *heads[:-1]], faults)]
        text += _shortfall(python, programs)
    return text


def _keys(programs: dict[str, Any]) -> list[str]:
    pairs = next(iter(programs.values()))["pairs"]
    return list(dict.fromkeys(pair["variant"] for pair in pairs))


def _faults(pairs: Any, variant: str, side: str) -> float:
    return Spread.of([pair[side]["faults"] for pair in of(pairs, variant)]).median


def _shortfall(python: str, programs: dict[str, Any]) -> list[str]:
    """Where profiled programs gain less than the issue's."""
    ratios = {name: ratio(each["pairs"], PROFILED).median for name, each in programs.items() if name in ISSUE}
    short = [f"{name} ({ratios[name]:.3f})" for name in ratios if ratios[name] > ISSUE[name]]
    if not short:
        return ["", f"Profiled at {PROFILED}, {python} gains more than the issue on each of its programs."]
    return ["", f"Gains less than the issue, profiled at {PROFILED}: {', '.join(short)}."]


def plots(raw: Raw) -> dict[str, str]:
    """A picture for each interpreter."""
    pictures = {}
    for python, programs in raw["interpreters"].items():
        keys = [key for key in _keys(programs) if key != PLAIN]
        groups = {}
        for name, each in programs.items():
            groups[name] = {key: ratio(each["pairs"], key).median for key in keys}
            if name in ISSUE:
                groups[name]["the issue"] = ISSUE[name]
        version = re.sub(r"\D+", "-", python).strip("-")
        pictures[f"huge-pages-{version}"] = plot.bars(f"CPU time over plain, {python}", groups)
    return pictures


EXPERIMENT = Experiment("huge-pages", "Huge pages", run, lines, plots)
