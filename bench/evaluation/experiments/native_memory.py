"""What native memory costs: pairs of ``malloc`` and ``free`` in threads of Python, and in a program without Python."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

from evaluation.experiment import Bench, Experiment, Missing, Raw
from evaluation.interpreters import BENCH, SCRIPT, own, profiled
from evaluation.pairs import Command, printed
from evaluation.words import table

SOURCES = BENCH / "evaluation" / "native"
PROBE = BENCH / "evaluation" / "probes" / "native_pairs.py"
EVERY = "512KiB"
# Size in bytes, threads, steps of work between the calls of a pair.
IN_PYTHON = [(64, 1, 0), (64, 2, 0), (1000, 1, 0), (64, 1, 190), (64, 2, 190), (1000, 1, 190), (1000, 2, 190)]
# Size in bytes, pairs, steps of work.
WITHOUT = [(64, 20_000_000, 0), (1000, 20_000_000, 0), (64, 3_000_000, 190), (1000, 3_000_000, 190)]


def run(bench: Bench) -> Raw:
    """Measures each case in turn, plain and profiled; each keeps the times of all turns."""
    compiler = shutil.which("cc")
    if not compiler:
        raise Missing("there is no C compiler")
    library, program = bench.folder / "pairs.so", bench.folder / "loop"
    for out, source, options in ((library, "pairs.c", ["-shared", "-fPIC"]), (program, "loop.c", [])):
        subprocess.run([compiler, "-O2", *options, "-o", str(out), str(SOURCES / source)], check=True)
    rows: list[dict[str, Any]] = []
    raw = {"interpreter": own().name, "rows": rows}
    for size, threads, work in bench.track(IN_PYTHON[3:4] if bench.quick else IN_PYTHON, "in Python"):
        words = [str(PROBE), str(library), str(size), str(threads), str(work)]
        plain, other = [own().path, *words], profiled(own(), bench.folder / "out.nthb", words, EVERY)
        rows.append({"program": "Python", "size": size, "threads": threads, **_turns(bench, plain, other)})
        bench.keep(raw)
    for size, pairs, work in bench.track(WITHOUT[2:3] if bench.quick else WITHOUT, "without Python"):
        words = [str(program), str(pairs // (10 if bench.quick else 1)), str(size), str(work)]
        other = [
            own().path,
            str(SCRIPT),
            "run",
            "-q",
            "-f",
            "--every",
            EVERY,
            "-o",
            str(bench.folder / "out.nthb"),
            "--",
            *words,
        ]
        rows.append({"program": "C", "size": size, "threads": 1, **_turns(bench, words, other)})
        bench.keep(raw)
    return raw


def _turns(bench: Bench, plain: list[str], other: list[str]) -> dict[str, list[float]]:
    times = [
        [printed(Command(words, bench.folder)) for words in (plain, other)] for _ in range(bench.rounds(9))
    ]
    return {"plain": [one for one, _ in times], "other": [other for _, other in times]}


def lines(raw: Raw) -> list[str]:
    """The table."""
    cells = []
    for row in raw["rows"]:
        plain, other = min(row["plain"]), min(row["other"])
        cells.append(
            [
                "in Python's threads" if row["program"] == "Python" else "`run -- ./program`",
                f"{row['size']}",
                f"{row['threads']}",
                f"{2000 / plain:.0f} million",
                f"{plain:.2f}",
                f"{other:.2f}",
                f"{other / plain:.3f}",
            ]
        )
    turns = len(raw["rows"][0]["plain"]) if raw["rows"] else 0
    return [
        f"Pairs of `malloc` and `free` at 512 KiB, in CPU time; the least of {turns} turns, plain and profiled one after the other. Rows with more than 100 million calls a",
        f"second are a loop that does nothing else; the others have work between the calls. {raw['interpreter']}.",
        "",
        *table(
            ["where", "bytes", "threads", "calls a second and thread", "plain, ns", "profiled, ns", "ratio"],
            cells,
        ),
    ]


EXPERIMENT = Experiment("native-memory", "Native memory", run, lines)
