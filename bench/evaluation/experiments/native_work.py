"""What native memory costs real work: arrays, images, tables, reads, and C++ vectors, at the default settings."""

from __future__ import annotations

import shutil
import subprocess
from statistics import geometric_mean
from typing import Any

from evaluation.experiment import Bench, Experiment, Missing, Raw
from evaluation.interpreters import BENCH, PACKAGES, ROOT, SCRIPT, Interpreter, cpythons, own, pypys
from evaluation.pairs import Command, printed
from evaluation.words import mean_and_worst, spaced, table

SOURCE = BENCH / "evaluation" / "native" / "vectors.cpp"
PROBE = BENCH / "evaluation" / "probes" / "native_work.py"
# `make bench` installs packages for other interpreters here, in folders such as cp314.
OTHERS = ROOT / "build" / "bench" / "packages"
KIB, MIB = 1 << 10, 1 << 20
# Case, and the size that it takes, in bytes.
CASES: list[tuple[str, int]] = [
    *(("numpy", size * KIB) for size in (16, 64, 256, 512, 2048, 4096, 16384, 65536)),
    ("pillow", 0),
    ("frames", 0),
    ("pandas-objects", 0),
    ("pandas-arrow", 0),
    ("polars", 0),
    *(("read", size * MIB) for size in (1, 4, 16, 64)),
    ("zlib", 0),
    ("sqlite", 0),
]
TITLES = {
    "numpy": "NumPy, `b = a*2.0; b + a`",
    "pillow": "Pillow: resize, rotate, blur, write PNG",
    "frames": "video frames: NumPy copies of 1080p",
    "pandas-objects": "pandas, strings as objects",
    "pandas-arrow": "pandas, strings of Arrow",
    "polars": "polars",
    "read": "`os.read`",
    "zlib": "zlib: compress, decompress",
    "sqlite": "sqlite: fill, index, ask",
    "vectors": "`std::vector` that grows (`run -- ./program`)",
}
ROUNDS = 7
VECTORS = 200
# Ends a second thread before the work begins.
THREADED = "--second-thread"
MOST = 1.03
MOST_MEAN = 1.01
MOST_FAULTS = 1.05
# Pages that a session touches for the first time do not count: 1 MiB. PyPy's compiler's and collector's differ from run to
# run.
OWN_FAULTS = {False: 256, True: 4096}


def run(bench: Bench) -> Raw:
    """Measures each case in turn, plain, profiled, and plain after a second thread; each keeps what all turns used.

    The GNU C library leaves out locked instructions until a process starts a second thread, which a session does.
    """
    raw: Raw = {"interpreters": {}}
    newer = [one for one in cpythons() if one.version == (3, 14)]
    pypy = sorted(pypys(), key=lambda one: one.version)[-1:]
    pythons = [own()] if bench.quick else [own(), *newer, *pypy]
    for python in bench.track(pythons, "interpreters"):
        rows: list[dict[str, Any]] = []
        raw["interpreters"][python.name] = {"is_pypy": python.is_pypy, "cases": rows}
        missing = set()
        for name, size in bench.track(CASES[2::6] if bench.quick else CASES, "cases"):
            row = _case(bench, python, name, size)
            if "missing" in row:
                missing.add(row["missing"])
            else:
                rows.append({"case": name, "size": size, **row})
            bench.keep(raw)
        if missing:
            bench.note(f"{python.name} has no {', '.join(sorted(missing))}.")
    raw["interpreters"]["without Python"] = {"is_pypy": False, "cases": [_vectors(bench)]}
    return raw


def _case(bench: Bench, python: Interpreter, name: str, size: int) -> dict[str, Any]:
    words = [str(PROBE), name, *([f"{size // KIB}"] if size else []), *(["--short"] if bench.quick else [])]
    kind = f"{'pp' if python.is_pypy else 'cp'}{''.join(map(str, python.version))}"
    environment = {} if python is own() else {"PYTHONPATH": f"{OTHERS / kind}:{PACKAGES}"}
    commands = [
        Command([python.path, *before, *words, *after], bench.folder, environment)
        for before, after in (([], []), (_recorded(bench), []), ([], [THREADED]))
    ]
    first = printed(commands[0], python)
    return first if "missing" in first else _turns(bench, commands, python)


def _recorded(bench: Bench) -> list[str]:
    return [str(SCRIPT), "run", "-q", "-f", "-o", str(bench.folder / "out.nthb")]


def _vectors(bench: Bench) -> dict[str, Any]:
    compiler = shutil.which("c++")
    if not compiler:
        raise Missing("there is no C++ compiler")
    program = bench.folder / "vectors"
    subprocess.run([compiler, "-O2", "-pthread", "-o", str(program), str(SOURCE)], check=True)
    words = [str(program), "2" if bench.quick else f"{VECTORS}"]
    commands = [
        Command(words, bench.folder),
        Command([own().path, *_recorded(bench), "--", *words], bench.folder),
        Command([*words, THREADED], bench.folder),
    ]
    return {"case": "vectors", "size": 0, **_turns(bench, commands, own())}


def _turns(bench: Bench, commands: list[Command], python: Interpreter) -> dict[str, Any]:
    found: list[list[dict[str, float]]] = [[] for _ in commands]
    for turn in range(bench.rounds(ROUNDS)):
        order = range(len(commands))
        for which in order if turn % 2 else reversed(order):
            found[which].append(printed(commands[which], python))
    return {"plain": found[0], "other": found[1], "threaded": found[2]}


def ratio(row: dict[str, Any], which: str = "other") -> float:
    """CPU time over plain: the least of both."""
    return _least(row[which], "cpu") / _least(row["plain"], "cpu")


def has_more_faults(row: dict[str, Any], is_pypy: bool) -> bool:
    """Whether page faults are beyond the limit."""
    plain, other = (_least(row[which], "faults") for which in ("plain", "other"))
    return other > MOST_FAULTS * plain + OWN_FAULTS[is_pypy]


def _least(turns: list[dict[str, float]], what: str) -> float:
    return min(turn[what] for turn in turns)


def _title(row: dict[str, Any]) -> str:
    return TITLES[row["case"]] + (f", {spaced(row['size'])}" if row["size"] else "")


def lines(raw: Raw) -> list[str]:
    """A table for each interpreter, and the figures over the limits."""
    turns = max(
        (len(row["plain"]) for one in raw["interpreters"].values() for row in one["cases"]), default=0
    )
    text = [
        f"Work whose memory is mostly native code's, at the default settings: CPU time after a tenth of the work, and page faults, with nthbyte and plain; the least of {turns} turns, in",
        f"alternating order. The aim is {MOST} for each, {MOST_MEAN} in the mean, and page faults within 5 % of plain's; up to {OWN_FAULTS[False]} are the session's own ({OWN_FAULTS[True]:,} on PyPy).",
    ]
    for name, one in raw["interpreters"].items():
        if one["cases"]:
            text += ["", f"### Native memory: {name}", "", *_interpreter(one)]
    return text


def _alike(rows: list[dict[str, Any]]) -> list[float]:
    # Where nthbyte changes what the program does, a few times faster says nothing of the others.
    return [ratio(row) for row in rows if ratio(row) > 0.5]


def means(raw: Raw) -> list[list[str]]:
    """For each interpreter: its name, the number of programs, the mean, and the worst."""
    found = []
    for name, one in raw["interpreters"].items():
        # A single program has no mean.
        if len(rows := one["cases"]) > 1:
            ratios = [ratio(row) for row in rows]
            found.append([name, f"{len(rows)}", mean_and_worst(geometric_mean(_alike(rows)), max(ratios))])
    return found


def _interpreter(one: Raw) -> list[str]:
    rows = one["cases"]
    # Results from before that was measured have no such turns.
    threaded = all("threaded" in row for row in rows)
    cells = [
        [
            _title(row),
            f"{_least(row['plain'], 'cpu'):.2f} s",
            f"{ratio(row):.3f}",
            *([f"{ratio(row, 'threaded'):.3f}"] if threaded else []),
            *(f"{_least(row[which], 'faults'):,}" for which in ("plain", "other")),
        ]
        for row in rows
    ]
    alike = _alike(rows)
    mean = geometric_mean(alike)
    over = [f"{_title(row)} {ratio(row):.3f}" for row in rows if ratio(row) > MOST]
    if len(rows) > 1 and mean > MOST_MEAN:
        over.append(f"mean {mean:.3f}")
    left_out = " of those above 0.5" if len(alike) < len(rows) else ""
    faults = [_title(row) for row in rows if has_more_faults(row, one["is_pypy"])]
    return [
        *table(
            [
                "work",
                "plain",
                "CPU over plain",
                *(["plain, after a second thread"] if threaded else []),
                "page faults, plain",
                "page faults, profiled",
            ],
            cells,
        ),
        "",
        *([f"Geometric mean: **{mean:.3f}**{left_out}.", ""] if len(rows) > 1 else []),
        f"**Over the aim**: {'; '.join(over)}." if over else "All within the aim.",
        *([f"**More page faults**: {'; '.join(faults)}."] if faults else []),
    ]


EXPERIMENT = Experiment("native-work", "Native memory in real work", run, lines)
