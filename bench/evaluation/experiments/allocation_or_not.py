"""An array that a fold fills, and a vector that is collected: "Allocations are good, actually", with today's compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from evaluation.experiment import Bench, Experiment, Missing, Raw
from evaluation.interpreters import BENCH, SCRIPT
from evaluation.pairs import Command, run_together
from evaluation.profile import summary
from evaluation.spread import Spread
from evaluation.words import bytes_text, table

SOURCE = BENCH / "evaluation" / "native" / "numbers.rs"
NUMBERS = 32 * 1024
BUILDS = {"debug": ["-g"], "release": ["-g", "-O"]}
# Calls of a measured run.
TIMES = {
    ("array", "debug"): 5,
    ("array", "release"): 5,
    ("vector", "debug"): 2000,
    ("vector", "release"): 100_000,
}
# What the post measured of one call, with the start of the process.
POST = {
    ("array", "debug"): 1.45,
    ("array", "release"): 0.27,
    ("vector", "debug"): 0.01,
    ("vector", "release"): 0.005,
}
SAMPLED_CALLS = {"array": 5, "vector": 2000}


def run(bench: Bench) -> Raw:
    """Measures both functions in both builds, and profiles them."""
    compiler = shutil.which("rustc")
    if not compiler:
        raise Missing("rustc is not installed")
    found: list[dict[str, Any]] = []
    listings = {}
    for build, options in BUILDS.items():
        binary = bench.folder / f"numbers-{build}"
        _compile(compiler, binary, options)
        for kind in bench.track(("array", "vector"), build):
            times = TIMES[kind, build] // (5 if bench.quick else 1)
            once = Command([str(binary), kind, "0"], bench.folder)
            whole = Command([str(binary), kind, str(times)], bench.folder)
            rounds = range(bench.rounds(5))
            start = min(run_together([once])[0]["cpu"] for _ in rounds)
            seconds = [(run_together([whole])[0]["cpu"] - start) / times for _ in rounds]
            found.append({"kind": kind, "build": build, "seconds": seconds, **_seen(bench, binary, kind)})
    assembly = bench.folder / "numbers.s"
    _compile(compiler, assembly, ["-O", "--emit", "asm"])
    for kind in ("array", "vector"):
        listings[kind] = _loop(assembly.read_text(), kind)
    return {"compiler": _version(compiler), "rows": found, "loops": listings}


def _compile(compiler: str, to: Path, options: list[str]) -> None:
    words = [compiler, "--edition", "2024", *options, "-o", str(to), str(SOURCE)]
    subprocess.run(words, check=True, capture_output=True, text=True)


def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True).stdout.strip()


def _seen(bench: Bench, binary: Path, kind: str) -> dict[str, Any]:
    """What nthbyte says of a run: bytes that the function allocated, and the calls that allocated them."""
    profile = bench.folder / "numbers.nthb"
    calls = SAMPLED_CALLS[kind] // (5 if bench.quick else 1)
    words = [
        str(SCRIPT),
        "run",
        "-q",
        "-f",
        "--every",
        "512KiB",
        "--seed",
        "1",
        "-o",
        str(profile),
        "--",
        str(binary),
        kind,
        str(calls),
    ]
    run_together([Command(words, bench.folder)])
    rows = summary(profile, "--top", "1000")["rows"]
    of_it = next((row for row in rows if row["name"] == kind), None)
    return {
        "calls": calls,
        "allocated": of_it["total_bytes"] if of_it else {"estimate": 0, "low": 0, "high": 0},
    }


def _loop(assembly: str, name: str) -> list[str]:
    """The instructions of a function's last loop: from the label that its last backward jump goes to, up to that jump."""
    body = assembly.split(f"\n{name}:\n", 1)[1].split("\n.Lfunc_end", 1)[0].splitlines()
    places = {line[:-1]: index for index, line in enumerate(body) if line.endswith(":")}
    found: list[str] = []
    for index, line in enumerate(body):
        words = line.split()
        if len(words) == 2 and words[0].startswith("j") and places.get(words[1], index) < index:
            found = body[places[words[1]] : index + 1]
    return [line.replace("\t", " ").strip() for line in found if not line.lstrip().startswith(".cfi")]


def lines(raw: Raw) -> list[str]:
    """The table, and the loops that explain it."""
    rows = []
    for row in raw["rows"]:
        micros = Spread.of([1e6 * each for each in row["seconds"]])
        key = row["kind"], row["build"]
        that = row["allocated"]
        rows.append(
            [
                row["kind"],
                row["build"],
                f"{micros.text(1)} µs",
                f"{micros.median * 1000 / NUMBERS:.2f} ns",
                f"{POST[key]:.3f} s",
                f"{row['calls']:,} × {bytes_text(_exact(row['kind']))}",
                f"{bytes_text(that['estimate'])} ({bytes_text(that['low'])}–{bytes_text(that['high'])})",
            ]
        )
    copies = sum("call" in line for line in raw["loops"]["array"])
    head = ["function", "build", "a call", "a number", "the post's process", "allocated by", "nthbyte says"]
    return [
        f"`array` fills an array of {NUMBERS:,} numbers in a fold and allocates nothing; `vector` collects the same numbers. {raw['compiler']}. CPU time of a call, without the",
        'process around it; the post "Allocations are good, actually" gives the time of a whole process with one call. *nthbyte says*: what `nthbyte run -- ./numbers` has for this function, at 512 KiB.',
        "",
        *table(head, rows),
        "",
        f"The fold's closure takes the array by value and returns it. The loop has {copies} calls of `memcpy`, each of {NUMBERS * 4 // 1024} KiB, for two numbers: the array is copied in and out",
        "of the closure at each step. The vector's loop writes 32 numbers with eight stores. So the allocation is not what costs; the copies are, and no allocation profile shows them.",
        "",
        "```asm",
        "# array",
        *raw["loops"]["array"],
        "# vector",
        *raw["loops"]["vector"],
        "```",
    ]


def _exact(kind: str) -> int:
    return 4 * NUMBERS if kind == "vector" else 0


EXPERIMENT = Experiment("allocation-or-not", "Allocation or not", run, lines)
