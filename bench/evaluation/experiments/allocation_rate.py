"""How fast objects can be allocated that die at once: "How fast can the RPython GC allocate?", with and without sampling."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evaluation import plot
from evaluation.experiment import Bench, Experiment, Missing, Raw
from evaluation.interpreters import BENCH, ROOT, Interpreter, cpythons, profiled, pypys
from evaluation.pairs import PLAIN, Command, measure, plain, ratio, run_together
from evaluation.words import period, spaced, table

PROGRAM = BENCH / "evaluation" / "two_alive.py"
SOURCE = BENCH / "evaluation" / "native" / "two_alive.c"
PERIODS = (512 << 10, 32 << 10)
NEVER = 1 << 40
NURSERIES = ("1M", "4M", "32M")
# An object of the native programs: a header and a field.
OBJECT = 16


@dataclass(frozen=True)
class Case:
    """One way to allocate."""

    allocator: str
    settings: str
    """Nursery, JIT."""
    field: str
    """Whether the object's field is written."""
    size: int
    """Bytes of an object."""
    loops: int
    """Objects of a full run: about a second."""
    command: Callable[[int, int | None], Command]
    """Of a number of objects and a period, or None for a plain run."""
    at: Interpreter | None = None
    periods: tuple[int, ...] = PERIODS
    counted: bool = False
    """Whether callgrind counts its instructions."""


def run(bench: Bench) -> Raw:
    """Measures each case."""
    cases = [*_nurseries(bench), *_native(bench), *_pypy(bench), *_cpython(bench)]
    if bench.quick:
        # One of each kind; the last CPython stands for all.
        kinds = {case.allocator.split()[0]: case for case in cases}
        cases = [replace(case, periods=case.periods[:1]) for case in kinds.values()]
    callgrind = shutil.which("valgrind")
    if not callgrind:
        bench.note("valgrind is not installed: instructions are not counted.")
    rows: list[dict[str, Any]] = []
    for case in bench.track(cases, "allocators"):
        loops = case.loops // (50 if bench.quick else 1)
        base = case.command(loops, None)
        variants = {str(every): case.command(loops, every) for every in case.periods} | {PLAIN: base}
        starts = [run_together([case.command(1, None)], case.at)[0]["cpu"] for _ in range(bench.rounds(3))]
        row = {key: getattr(case, key) for key in ("allocator", "settings", "field", "size")}
        row |= {"loops": loops, "start": min(starts)}
        row["pairs"] = measure(base, variants, bench.rounds(3), case.at, warm=not bench.quick)
        if callgrind and case.counted:
            row["instructions"] = _instructions(case, bench)
        rows.append(row)
        bench.keep({"rows": rows})
    return {"rows": rows}


def _nurseries(bench: Bench) -> list[Case]:
    cargo = shutil.which("cargo")
    if not cargo:
        bench.note("The Rust nursery is not measured: `cargo` is not installed.")
        return []
    # The tests of the crate have built it without optimisation: a quick run takes that.
    words = [cargo, "build", *([] if bench.quick else ["--release"])]
    words += ["--quiet", "-p", "nthbyte-nursery", "--example", "rate", "--message-format=json"]
    built = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    binary = next(path for line in built if (path := json.loads(line).get("executable")))

    def case(nursery: str, field: bool) -> Case:
        def command(loops: int, every: int | None) -> Command:
            sampling = ["--every", str(every)] if every else []
            options = [] if field else ["--no-field"]
            size = str(int(nursery[:-1]) << 20)
            gigabytes = str(loops * OBJECT / 1e9)
            return Command([binary, *sampling, *options, "--nursery", size, gigabytes], bench.folder)

        settings, written = f"nursery {nursery}iB", "yes" if field else "no"
        loops = 600_000_000
        return Case(
            "nursery crate",
            settings,
            written,
            OBJECT,
            loops,
            command,
            periods=(*PERIODS, NEVER),
            counted=True,
        )

    return [case(nursery, field) for nursery in NURSERIES for field in (False, True)]


def _native(bench: Bench) -> list[Case]:
    compiler = shutil.which("cc")
    if not compiler:
        bench.note("malloc and the Boehm collector are not measured: there is no C compiler.")
        return []
    cases = []
    for name, options, loops in (
        ("malloc", [], 100_000_000),
        ("Boehm collector", ["-DBOEHM", "-lgc"], 30_000_000),
    ):
        binary = bench.folder / name.split()[0]
        words = [compiler, "-O2", "-o", str(binary), str(SOURCE), *options]
        if subprocess.run(words, capture_output=True).returncode:
            bench.note(f"{name} is not measured: its library is not installed (Debian: libgc-dev).")
            continue
        for field in ("no", "yes"):
            flag = "1" if field == "yes" else "0"

            def command(loops: int, _: int | None, binary: Path = binary, flag: str = flag) -> Command:
                return Command([str(binary), str(loops), flag], bench.folder)

            cases.append(Case(name, "", field, OBJECT, loops, command, periods=(), counted=True))
    return cases


def _pypy(bench: Bench) -> list[Case]:
    if not pypys():
        bench.note("PyPy is not installed.")
        return []
    cases = []
    for python in pypys():
        for jit, nurseries, loops in (
            (True, NURSERIES, 1_000_000_000),
            (False, ("4M",), 40_000_000),
        ):
            for nursery in nurseries:
                settings = f"JIT {'on' if jit else 'off'}, nursery {nursery}iB"
                flags = [] if jit else ["--jit", "off"]
                command = _python(bench, python, "integers", flags, {"PYPY_GC_NURSERY": nursery})
                cases.append(Case(python.name, settings, "yes", OBJECT, loops, command, python))
    return cases


def _cpython(bench: Bench) -> list[Case]:
    cases = []
    for python in cpythons():
        for what, field, loops in (("objects", "no", 15_000_000), ("fields", "yes", 15_000_000)):
            size = _size(python, "objects")
            command = _python(bench, python, what, [], {})
            periods = (*PERIODS, NEVER)
            cases.append(Case(python.name, "", field, size, loops, command, python, periods))
    return cases


def _python(
    bench: Bench, python: Interpreter, what: str, flags: list[str], environment: dict[str, str]
) -> Callable[[int, int | None], Command]:
    def command(loops: int, every: int | None) -> Command:
        words = [str(PROGRAM), what, str(loops)]
        if every:
            first, *rest = profiled(python, bench.folder / f"{every}.nthb", words, period(every))
            words = [first, *flags, *rest]
        else:
            words = [python.path, *flags, *words]
        return Command(words, bench.folder, environment)

    return command


def _size(python: Interpreter, what: str) -> int:
    words = python.words([str(PROGRAM), "size", what], PROGRAM.parent)
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def _instructions(case: Case, bench: Bench) -> dict[str, float]:
    """Instructions an object, plain and sampled: what many objects more take."""
    few, many = (20_000, 120_000) if bench.quick else (200_000, 1_200_000)
    found = {}
    for every in (None, *case.periods):
        counts = [_callgrind(case.command(loops, every), bench.folder) for loops in (few, many)]
        found[str(every) if every else PLAIN] = (counts[1] - counts[0]) / (many - few)
    return found


def _callgrind(command: Command, folder: Path) -> int:
    words = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder / 'callgrind'}", *command.words]
    done = subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True)
    count = re.search(r"refs:\s+([\d,]+)", done.stderr)
    if not count:
        raise Missing("callgrind counted nothing")
    return int(count[1].replace(",", ""))


def _rate(row: dict[str, Any]) -> float:
    """Gigabytes a second of plain runs, without their start."""
    seconds = plain(row["pairs"]).median - row["start"]
    return float(row["loops"] * row["size"] / seconds / 1e9)


def lines(raw: Raw) -> list[str]:
    """The table."""
    keys = [*map(str, PERIODS), str(NEVER)]
    rows = []
    for row in raw["rows"]:
        counts = row.get("instructions", {})
        kept = {pair["variant"] for pair in row["pairs"]}
        rows.append(
            [
                row["allocator"],
                row["settings"],
                row["field"],
                f"{row['size']}",
                f"{_rate(row):.2f}",
                f"{row['size'] / _rate(row):.2f}",
                *(ratio(row["pairs"], key).text() if key in kept else "" for key in keys),
                ratio(row["pairs"], PLAIN).text(),
                " / ".join(f"{counts[key]:.2f}" for key in (PLAIN, *keys) if key in counts),
            ]
        )
    head = ["allocator", "settings", "field written", "bytes", "GB/s", "ns an object"]
    head += [*map(spaced, PERIODS), "no sample", "control", "instructions an object"]
    return [
        "Two objects are alive at any time. GB/s and nanoseconds are of plain runs, without their start; they include the loop around the allocation. Then CPU time over plain with",
        "sampling; *no sample* has everything in place, with a period of 1 TiB. *Instructions* are callgrind's, plain / sampled at each period: the machine code is the same,",
        'and what is more belongs to the samples. The post "How fast can the RPython GC allocate?" has 34.3 GB/s and 11 instructions without the field, 29.7 and 13 with it, 1.53 for Boehm\'s collector, and 17.9 and 0.83 on',
        "PyPy with and without its JIT, on a processor of 2023. On CPython an object has the collector's header too, and `range` gives integers, which are",
        "not counted. On PyPy objects are integers. *malloc* and the *nursery crate* are programs in C and Rust; nothing of Python is in them.",
        "",
        *table(head, rows),
    ]


def plots(raw: Raw) -> dict[str, str]:
    """The rates."""
    groups: dict[str, dict[str, float]] = {}
    for row in raw["rows"]:
        name = "field written" if row["field"] == "yes" else "not written"
        label = f"{row['allocator']} {row['settings']}".strip()
        label = label.replace("nursery crate nursery", "nursery crate").replace("nursery ", "")
        groups.setdefault(label, {})[name] = _rate(row)
    return {"allocation-rate": plot.bars("Allocation rate", groups, " GB/s")}


EXPERIMENT = Experiment("allocation-rate", "Allocation rate", run, lines, plots)
