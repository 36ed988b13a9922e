"""The tools that people use today, on the same programs: what they cost, and what they find.

The exact answer is nthbyte's ``--every 1``. Compared are the ten functions with the most bytes of their own: how many of the true
ten a tool has among its ten, by file and name. tracemalloc knows only live memory, so its ten are the ten at the end of the
program; scalene knows lines and functions. A tool whose result this cannot read is measured without.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from evaluation import findings, plot
from evaluation.experiment import Bench, Experiment, Raw
from evaluation.experiments.profile_size import memray_run
from evaluation.interpreters import BENCH, SHORT, own, profiled, scripts
from evaluation.pairs import Command, Failed, measure, plain, ratio, rss, run_together
from evaluation.spread import Spread
from evaluation.words import bytes_text, table

UNDER = BENCH / "evaluation" / "under"
# The programs that do a task of their own with a package; the others are written as benchmarks.
PROGRAMS = (
    "astroid_modules",
    "chameleon_table",
    "django_templates",
    "docutils_html",
    "html5lib_page",
    "json_records",
    "lark_python",
    "markdown_document",
    "networkx_graphs",
    "pandas_objects",
    "pycparser_source",
    "pygments_html",
    "sqlglot_queries",
    "sympy_algebra",
)


@dataclass(frozen=True)
class Peer:
    """A tool: how it runs a script with its results in a folder, and what it finds there."""

    name: str
    words: Callable[[Path, str], list[str]]
    found: Callable[[Path], findings.Found]
    needs: str | None = None
    environment: Callable[[Path], dict[str, str]] = lambda folder: {}


def _nthbyte(name: str, every: str) -> Peer:
    return Peer(
        name,
        lambda folder, script: profiled(own(), folder / "out.nthb", [script], every),
        lambda folder: findings.nthbyte(folder / "out.nthb"),
    )


def _script(
    name: str, file: str, package: str | None, found: Callable[[Path], findings.Found], *more: str
) -> Peer:
    """A tool that a small script of ours starts: ``under/FILE FOLDER SCRIPT``."""
    return Peer(
        name,
        lambda folder, script: [own().path, str(UNDER / file), str(folder), script, *more],
        found,
        package,
    )


def _memray(folder: Path, script: str, *options: str) -> list[str]:
    return memray_run(folder / "out.bin", script, *options)


def _scalene(folder: Path, script: str) -> list[str]:
    options = ["--profile-all", "--memory", "--no-browser", "-o", str(folder / "out.json")]
    return [own().path, "-m", "scalene", "run", *options, script]


EXACT = _nthbyte("exact", "1")
PEERS = (
    _nthbyte("nthbyte 512 KiB", "512KiB"),
    _nthbyte("nthbyte 32 KiB", "32KiB"),
    Peer("memray", _memray, findings.memray, "memray"),
    Peer(
        "memray, Python allocators",
        lambda folder, script: _memray(folder, script, "--trace-python-allocators"),
        findings.memray,
        "memray",
    ),
    _script("tracemalloc, 1 frame", "with_tracemalloc.py", None, findings.listed, "1"),
    _script("tracemalloc, 25 frames", "with_tracemalloc.py", None, findings.listed, "25"),
    Peer("scalene", _scalene, findings.scalene, "scalene"),
    _script("ddtrace heap", "with_ddtrace.py", "ddtrace", findings.pprof),
    _script("Pyroscope memory", "with_pyroscope.py", "pyroscope", findings.pprof),
)


def run(bench: Bench) -> Raw:
    """Measures each tool on each program."""
    there = [peer for peer in PEERS if peer.needs is None or _is_there(bench, peer.needs)]
    programs = [SHORT] if bench.quick else scripts(list(PROGRAMS))
    if bench.quick:
        there = [peer for peer in there if peer.name != "tracemalloc, 25 frames"]
    found: dict[str, Any] = {}
    raw = {"interpreter": own().name, "programs": found}
    for script in bench.track(programs, "programs"):
        folder = _fresh(bench)
        run_together([_command(EXACT, folder, script)])
        found[script.stem] = {"exact": _top(EXACT.found(folder)), "tools": {}}
        for peer in bench.track(there, "tools"):
            try:
                found[script.stem]["tools"][peer.name] = _one(bench, script, peer)
            except Failed as error:
                bench.note(f"{peer.name} fails on {script.stem}: {str(error).splitlines()[-1][:120]}")
        bench.keep(raw)
    return raw


def _is_there(bench: Bench, package: str) -> bool:
    import importlib.util

    if importlib.util.find_spec(package):
        return True
    bench.note(f"{package} is not installed here.")
    return False


def _fresh(bench: Bench) -> Path:
    folder = bench.folder / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def _command(peer: Peer, folder: Path, script: Path) -> Command:
    return Command(peer.words(folder, str(script)), folder, peer.environment(folder))


def _one(bench: Bench, script: Path, peer: Peer) -> dict[str, Any]:
    folder = _fresh(bench)
    base = Command([own().path, str(script)], folder)
    # No pair is left out as a warm-up: the exact answers have compiled all modules.
    pairs = measure(base, {peer.name: _command(peer, folder, script)}, 1, warm=False)
    files = [path for path in folder.rglob("*") if path.is_file()]
    try:
        top: list[list[Any]] | None = _top(peer.found(folder))
    except findings.Unreadable as error:
        bench.note(f"What {peer.name} finds cannot be read: {error}.")
        top = None
    return {"pairs": pairs, "bytes": sum(os.path.getsize(path) for path in files), "top": top}


def _top(found: findings.Found) -> list[list[Any]]:
    return [[name, file, round(size)] for (name, file), size in found.most_common(10)]


def hits(exact: list[list[Any]], top: list[list[Any]]) -> int:
    """How many of the true ten functions are among a tool's ten."""
    return len({(name, file) for name, file, _ in exact} & {(name, file) for name, file, _ in top})


def by_tool(raw: Raw) -> dict[str, dict[str, Any]]:
    """The means of each tool over the programs."""
    found: dict[str, dict[str, Any]] = {}
    for peer in PEERS:
        those = [
            (each["exact"], each["tools"][peer.name])
            for each in raw["programs"].values()
            if peer.name in each["tools"]
        ]
        if not those:
            continue
        cpu = [ratio(one["pairs"], peer.name).median for _, one in those]
        peaks = [rss(one["pairs"], peer.name) for _, one in those]
        tops = [hits(exact, one["top"]) for exact, one in those if one["top"] is not None]
        found[peer.name] = {
            "programs": len(those),
            "cpu": geometric_mean(cpu),
            "spread": Spread.of(cpu),
            "worst": max(cpu),
            "rss": geometric_mean(peaks),
            "worst rss": max(peaks),
            "bytes": geometric_mean([max(1, one["bytes"]) for _, one in those]),
            "hits": sum(tops) / len(tops) if tops else None,
        }
    return found


def hits_text(tool: dict[str, Any]) -> str:
    """The mean number of the true functions that a tool found."""
    return "–" if tool["hits"] is None else f"{tool['hits']:.1f}"


def lines(raw: Raw) -> list[str]:
    """The means, and each program."""
    tools = by_tool(raw)
    rows = [
        [
            name,
            f"{each['programs']}",
            f"**{each['cpu']:.2f}**",
            f"{each['spread'].low:.2f}–{each['spread'].high:.2f}",
            f"{each['worst']:.2f}",
            f"{each['rss']:.2f}",
            f"{each['worst rss']:.2f}",
            bytes_text(each["bytes"]),
            hits_text(each),
        ]
        for name, each in tools.items()
    ]
    head = ["tool", "programs", "CPU", "quartiles", "worst", "peak RSS", "worst", "file", "of the true ten"]
    programs = []
    for name, each in raw["programs"].items():
        cells = [name, f"{plain([p for one in each['tools'].values() for p in one['pairs']]).median:.2f} s"]
        for tool in tools:
            one = each["tools"].get(tool)
            hit = "" if not one or one["top"] is None else f" ({hits(each['exact'], one['top'])})"
            cells.append(f"{ratio(one['pairs'], tool).median:.2f}{hit}" if one else "–")
        programs.append(cells)
    return [
        f"{raw['interpreter']}, a pair for each program and tool; the tools have their defaults. CPU time and peak RSS over plain, geometric means over the programs;",
        "the quartiles are those of the programs. *Of the true ten*: the mean number of the ten functions with the most bytes of their",
        "own, as `--every 1` counts them, that are among the tool's ten. memray without Python allocators sees arenas and large",
        "blocks only, and tracemalloc what is alive at the end: they answer other questions. While a profile function is set, as memray does it,",
        "CPython 3.11 makes a frame object for each call (with cProfile, `--every 1` shows one for each): memray's ten contain these too.",
        "",
        *table(head, rows),
        "",
        "CPU over plain for each program, in brackets the functions found:",
        "",
        *table(["program", "plain", *tools], programs),
    ]


def plots(raw: Raw) -> dict[str, str]:
    """CPU time of each tool."""
    tools = by_tool(raw)
    cost = {name: {"CPU": each["cpu"], "peak RSS": each["rss"]} for name, each in tools.items()}
    return {"peers": plot.bars("CPU time and peak RSS over plain: geometric mean of real programs", cost)}


EXPERIMENT = Experiment("peers", "Other tools", run, lines, plots)
