"""Runs whole programs with nthbyte and without, compares what they print, and writes docs/compatibility-programs.md.

Usage: python -m compatibility.whole_programs [NAME...]; all programs without a name. Results are kept in
build/compatibility/programs, and the document has all that are there, and says which programs were not run.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from compatibility.execution import Command, execute
from harness import COMMAND, REPOSITORY, SITE

DOCUMENT = REPOSITORY / "docs" / "compatibility-programs.md"
PROGRAMS = Path(__file__).parent / "programs"
VENVS = REPOSITORY / "build" / "compatibility" / "programs"
# Against what hangs only; shorter where other programs have the same setting.
LIMIT = 500
LIMIT_OF_A_SETTING = 10
RESULTS = VENVS / "results.json"

CELERY = ["celery==5.7.0"]
FROZEN = ["pyinstaller==6.22.3"]
PEX = ["pex==2.105.2"]
RUN = ["-m", "nthbyte", "run", "-o", "out.nthb"]

_HEAD = """# Whole programs

Beside the [suites](compatibility.md), whole programs were run with nthbyte and without: servers, loaders of data,
frozen programs, and programs under settings of the system that are not the usual ones. What they print and how they end
is compared.

This page is written by `make compatibility-programs` (`tests/compatibility/whole_programs.py`, with the programs in
`tests/compatibility/programs/`), from what was really run.
"""


class UnavailableError(Exception):
    """A program cannot be run here."""


@dataclass(frozen=True)
class Program:
    """A program that is run both ways."""

    name: str
    about: str
    words: Callable[[str, Sequence[str]], list[str]]
    """The command line, from the interpreter and what comes before the program: nothing, or `-m nthbyte run …`."""
    requires: Sequence[str] = ()
    """Packages, which get a venv of their own."""
    prepare: Callable[[str, Path], None] | None = None
    """Makes what it needs in its folder."""
    setting: tuple[str, str] | None = None
    """A file below /proc/sys, and its text while it runs."""
    module: str | None = None
    """A module that the interpreter must have already."""


def _pyinstaller(*options: str) -> Callable[[str, Path], None]:
    def prepare(python: str, folder: Path) -> None:
        for script, more in (("pool.py", []), ("recorded_pool.py", ["--collect-all", "nthbyte"])):
            words = ["-m", "PyInstaller", "-y", "--log-level", "ERROR", *options, *more, script]
            _call([python, *words], folder)

    return prepare


def _frozen(path: str) -> Callable[[str, Sequence[str]], list[str]]:
    return lambda _python, run: [path.format(name="recorded_pool" if run else "pool")]


def _pex(python: str, folder: Path) -> None:
    (folder / "source").mkdir()
    shutil.copy(folder / "pool.py", folder / "source")
    setup = 'from setuptools import setup\nsetup(name="pool", version="1", py_modules=["pool"])\n'
    (folder / "source" / "setup.py").write_text(setup)
    [wheel] = (REPOSITORY / "build" / "wheels").glob("*.whl")
    _call([python, "-m", "pex", "./source", str(wheel), "--python", python, "-o", "pool.pex"], folder)


def _of(python: str, run: Sequence[str], *words: str) -> list[str]:
    return [python, *run, *words]


def _worker(pool: str) -> Callable[[str, Sequence[str]], list[str]]:
    return lambda python, run: _of(python, (), "worker.py", pool, python, *run)


def _with(*words: str) -> Callable[[str, Sequence[str]], list[str]]:
    return lambda python, run: _of(python, run, *words)


OVERCOMMIT = "vm/overcommit_memory"
TABLE = [
    Program("celery, prefork", "a worker, 33 tasks, SIGTERM", _worker("prefork"), CELERY),
    Program("celery, threads", "the same", _worker("threads"), CELERY),
    Program("celery, solo", "the same", _worker("solo"), CELERY),
    Program("DataLoader", "PyTorch, two workers, each start method", _with("loader.py"), module="torch"),
    Program(
        "PyInstaller, one folder",
        "a pool by each start method; the program records itself",
        _frozen("dist/{name}/{name}"),
        FROZEN,
        _pyinstaller("--onedir"),
    ),
    Program("PyInstaller, one file", "the same", _frozen("dist/{name}"), FROZEN, _pyinstaller("--onefile")),
    Program(
        "PEX",
        "the same pool; `app.pex -m nthbyte run -m pool`",
        lambda python, run: _of(python, (), "pool.pex", *run, "-m", "pool"),
        PEX,
        _pex,
    ),
    Program(
        "Valgrind", "Memcheck, a short script", lambda p, run: ["valgrind", "-q", p, *run, "memory.py", "1"]
    ),
    Program(
        "vm.overcommit_memory 1", "large blocks, a fork", _with("memory.py", "64"), setting=(OVERCOMMIT, "1")
    ),
    Program("vm.overcommit_memory 2", "the same", _with("memory.py", "64"), setting=(OVERCOMMIT, "2")),
    Program(
        "no transparent huge pages",
        "the same, by `prctl`",
        lambda python, run: [python, "-c", _WITHOUT_HUGE_PAGES, python, *run, "memory.py", "64"],
    ),
    Program("8 GiB", "an object of 8 GiB, touched here and there", _with("memory.py", "8192")),
]

# 41 is PR_SET_THP_DISABLE (include/uapi/linux/prctl.h), which the program inherits.
_WITHOUT_HUGE_PAGES = """
import ctypes, os, sys
assert ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


@dataclass(frozen=True)
class Row:
    """What was found of a program."""

    ends: str
    """How it ended without nthbyte."""
    is_same: bool
    processes: int
    """Those with a profile."""
    samples: int
    versions: str
    date: str
    python: str


def main(names: Sequence[str]) -> int:
    """Runs the named programs, or all, and writes the document. Returns the exit status."""
    rows = {}
    if RESULTS.exists():
        rows = {name: Row(**row) for name, row in json.loads(RESULTS.read_text()).items()}
    reasons = {}
    for program in TABLE:
        if names and program.name not in names:
            continue
        try:
            rows[program.name] = row = _compare(program)
            print(program.name, "the same" if row.is_same else "DIFFERS", flush=True)
            VENVS.mkdir(parents=True, exist_ok=True)
            RESULTS.write_text(json.dumps({name: asdict(row) for name, row in rows.items()}, indent=1))
        except UnavailableError as error:
            reasons[program.name] = str(error)
            print(program.name, error, flush=True)
    DOCUMENT.write_text("\n".join(_document(rows, reasons)) + "\n")
    return 0 if all(row.is_same for row in rows.values()) else 1


def _document(rows: Mapping[str, Row], reasons: Mapping[str, str]) -> Iterator[str]:
    yield _HEAD
    dates = sorted({row.date for row in rows.values()})
    pythons = sorted({row.python for row in rows.values()})
    yield f"Run on {' and '.join(dates)}, on Linux x86-64, as root, on CPython {', '.join(pythons)}."
    yield ""
    yield "| program | what it does | with nthbyte | ends with | processes with a profile | samples | versions |"
    yield "|---|---|---|---|---|---|---|"
    for program in TABLE:
        if row := rows.get(program.name):
            same = "the same" if row.is_same else "**differs**"
            cells = [program.name, program.about, same, row.ends, str(row.processes), f"{row.samples:,}"]
            yield f"| {' | '.join([*cells, row.versions])} |"
    yield ""
    yield "Children that a frozen program starts by `spawn` have no profile: see [Limits](guide/limits.md)."
    if left := [program.name for program in TABLE if program.name not in rows]:
        yield ""
        yield "## Not run"
        yield ""
        yield from (f"- {name}: {reasons.get(name, 'not run yet')}." for name in left)


def _compare(program: Program) -> Row:
    python, versions = _interpreter(program)
    folder = Path(tempfile.mkdtemp(prefix="nthbyte-programs-"))
    try:
        shutil.copytree(PROGRAMS, folder, dirs_exist_ok=True)
        if program.prepare is not None:
            program.prepare(python, folder)
        with _set(program):
            limit = LIMIT if program.setting is None else LIMIT_OF_A_SETTING
            plain = _run(program.words(python, ()), folder, limit)
            profiled = _run(program.words(python, RUN), folder, limit)
        profiles = sorted(folder.glob("*.nthb"))
        samples = sum(_samples(path) for path in profiles)
        ends = f"status {plain[0]}, lines: {plain[1].count(chr(10))}"
        if plain != profiled:
            print(plain[0], plain[1][-2000:], profiled[0], profiled[1][-2000:], sep="\n", file=sys.stderr)
        today = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
        version = "{}.{}.{}".format(*sys.version_info)
        return Row(ends, plain == profiled, len(profiles), samples, versions, today, version)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _interpreter(program: Program) -> tuple[str, str]:
    """Returns the interpreter with what the program requires, and the versions of that."""
    if program.words(sys.executable, ())[0] == "valgrind" and shutil.which("valgrind") is None:
        raise UnavailableError("Valgrind is not installed")
    if program.module is not None:
        code = f"import {program.module}; print({program.module}.__version__)"
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        if found.returncode != 0:
            raise UnavailableError(f"this Python has no {program.module}")
        return sys.executable, f"{program.module} {found.stdout.strip()}"
    if not program.requires:
        return sys.executable, ""
    name = re.sub(r"\W+", "-", " ".join(program.requires))
    python = VENVS / name / "bin" / "python"
    if not python.exists():
        _call([sys.executable, "-m", "venv", str(VENVS / name)], REPOSITORY)
        _call([str(python), "-m", "pip", "install", "-q", "setuptools", *program.requires], REPOSITORY)
    return str(python), ", ".join(one.replace("==", " ") for one in program.requires)


def _call(words: Sequence[str], folder: Path) -> None:
    done = subprocess.run(
        words, cwd=folder, env=_environment(), capture_output=True, text=True, timeout=LIMIT
    )
    if done.returncode != 0:
        raise UnavailableError(
            f"`{Path(words[0]).name} {' '.join(words[1:4])}` failed: {done.stderr[-300:]!r}"
        )


def _environment() -> dict[str, str]:
    paths = [str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": ":".join(paths)}


@contextmanager
def _set(program: Program) -> Iterator[None]:
    """Has a setting of the system while a program runs."""
    if program.setting is None:
        yield
        return
    file = Path("/proc/sys") / program.setting[0]
    before = file.read_text()
    try:
        file.write_text(program.setting[1])
    except OSError as error:
        raise UnavailableError(f"{program.setting[0]} cannot be set here ({error.strerror})") from None
    try:
        yield
    finally:
        file.write_text(before)


def _run(words: Sequence[str], folder: Path, limit: float) -> tuple[int, str]:
    """Returns how a program ends, and what it writes but for the line of nthbyte."""
    output = folder / "output"
    ended = execute(Command(words, folder, _environment()), output, limit)
    lines = output.read_text(errors="replace").splitlines(keepends=True)
    # Memcheck's reports differ.
    kept = [line for line in lines if not re.match(r"nthbyte: |==\d+==", line)]
    return ended.status, "".join(kept)


def _samples(profile: Path) -> int:
    words = [str(COMMAND), "summary", "--json", str(profile)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    samples: int = json.loads(done.stdout)["samples"]
    return samples


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
