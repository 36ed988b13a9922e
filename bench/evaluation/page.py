"""Writes the pages and plots that are made of raw results.

``docs/evaluation.md`` and ``docs/exactness.md`` are written as a whole. In other pages, what stands between the marks
``<!-- measured: NAME -->`` and ``<!-- end measured -->`` is: ``SECTIONS`` has a function for each name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from evaluation import results, sections
from evaluation.interpreters import ROOT
from evaluation.registry import ALL
from evaluation.results import Result

MARKS = re.compile(r"(<!-- measured: ([\w-]+) -->\n).*?(<!-- end measured -->)", re.DOTALL)
PAGES = (
    "README.md",
    "docs/exactness.md",
    "docs/native-memory.md",
    "docs/flamegraph.md",
    "docs/case-study.md",
    "docs/guide/comparison.md",
)

_INTRODUCTION = """\
# The evaluation

`make bench` runs these experiments and writes this page; `make bench ONLY="peers period"` runs some of them, and
`make bench QUICK=1` runs all in two minutes, for a look and as a test. Each is a file in `bench/evaluation/experiments`. The raw
results are in `docs/measurements`, a JSON file for each experiment, with the plots; a test checks that this page and the figures
in the README and the other documents are those of the raw results.

**How it is measured.** On a shared machine, two equal runs one after the other differ by 20 % and more. So a *plain* run, without nthbyte or
another tool, and the run that is compared with it start at the same time on one core: they take turns every few milliseconds, and what disturbs one disturbs the other. A
figure is the median of the ratios of such pairs, in brackets their quartiles (of less than four pairs, the smallest and the largest). 1.000 is as fast as plain,
less is faster. The *control* pairs two plain runs: it shows the error of the method. *Over budget* lists the figures that miss the limits which the project has set itself. Seconds are CPU time, user and system, with all threads and
children. Load is the mean number of processes that ran or waited during the minute before an experiment, and at its end; with two cores, 2.0 is
a machine at work.

The experiments are those of "Low Overhead Allocation Sampling in a Garbage Collected Virtual Machine" (Jung and Bolz-Tereick, 2026; *the paper*), of two posts and an issue that their
sections name, and of comparisons with other tools. The programs are ours.
"""


def render(folder: Path = results.KEPT) -> dict[str, str]:
    """All pages and plots, by their paths in the repository."""
    found = {one.name: results.load(one.name, folder) for one in ALL}
    return {"docs/evaluation.md": _evaluation(found), **_plots(found), **_marked(found)}


def write(folder: Path = results.KEPT, root: Path = ROOT) -> Iterator[Path]:
    """Writes what has changed, and yields the paths."""
    for name, text in render(folder).items():
        path = root / name
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            yield path


def _evaluation(found: dict[str, Result | None]) -> str:
    lines = [_INTRODUCTION]
    machines = {_machine(result): result for result in found.values() if result}
    lines += [*(f"- {machine}" for machine in machines), ""]
    for one in ALL:
        result = found[one.name]
        lines += [f"## {one.title}", ""]
        if result is None:
            lines += [f'Not measured yet: `make bench ONLY="{one.name}"`.', ""]
            continue
        lines += [_head(result), ""]
        lines += [f"- {note}" for note in result.notes] + ([""] if result.notes else [])
        if result.raw is not None:
            for name in one.plots(result.raw):
                lines += [f"![{name.replace('-', ' ')}](measurements/{name}.svg)", ""]
            lines += [*one.page(result.raw), ""]
    return "\n".join(lines).rstrip() + "\n"


def _machine(result: Result) -> str:
    it = result.machine
    return (
        f"{it['processor']}, {it['architecture']}, {it['cores']} cores, {it['memory_gib']} GiB; Linux {it['kernel']},"
        f" {it['system']}, {it['libc']}; huge pages: {it['huge_pages']}; {it['cc']}; {it['rustc']}"
    )


def _head(result: Result) -> str:
    before, after = result.load
    return (
        f"*`{result.experiment}`, {result.date}, nthbyte {result.version}, {result.seconds:.0f} s; load {before} before,"
        f" {after} after.*"
    )


def _plots(found: dict[str, Result | None]) -> dict[str, str]:
    pictures = {}
    for one in ALL:
        result = found[one.name]
        if result and result.raw is not None:
            for name, text in one.plots(result.raw).items():
                pictures[f"docs/measurements/{name}.svg"] = text
    return pictures


def _marked(found: dict[str, Result | None]) -> dict[str, str]:
    def replace(match: re.Match[str]) -> str:
        lines = sections.SECTIONS[match[2]](found)
        return match[0] if lines is None else match[1] + "\n".join(lines) + "\n" + match[3]

    texts = {name: (ROOT / name).read_text() for name in PAGES if (ROOT / name).exists()}
    return {name: MARKS.sub(replace, text) for name, text in texts.items()}
