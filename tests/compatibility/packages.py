"""The suites of packages: packages.toml's, each in a venv of its own."""

from __future__ import annotations

import fnmatch
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import tomllib

from compatibility.comparison import Suite
from compatibility.execution import Command
from harness import REPOSITORY, Interpreter

INSIDE = Path(__file__).resolve().parent / "inside"
TABLE = Path(__file__).with_name("packages.toml")
BUILD = REPOSITORY / "build" / "compatibility"
WHEELS = REPOSITORY / "build" / "wheels"

LIMIT = 1200.0


class NotPreparedError(Exception):
    """A package cannot be installed here, or its tests cannot be had; the text says why."""


@dataclass(frozen=True)
class Package:
    """An entry of the table."""

    name: str
    requires: list[str]
    """The installed packages, pinned; the package itself first."""
    tests: list[str]
    """The arguments that name the tests: files and folders, or modules after `--pyargs`."""
    files: list[str] = field(default_factory=list)
    """The files taken from the source distribution, as patterns of paths in it; none if the tests are installed."""
    source: str = ""
    """The requirement whose source distribution has the tests, if it is not the package itself."""
    options: list[str] = field(default_factory=list)
    """Further arguments of the runner."""
    runner: list[str] = field(default_factory=list)
    """What runs the tests in place of pytest, as words after `python`; with unittest's results."""
    folder: str = "."
    """Where the runner starts, in what was taken from the source distribution."""
    variables: dict[str, str] = field(default_factory=dict)
    kind: str = ""
    """What it is here for."""
    part: str = ""
    """The tests to run, if not all."""
    limit: float = LIMIT

    @property
    def requirement(self) -> str:
        """The package itself, pinned."""
        return self.requires[0]


@dataclass(frozen=True)
class Table:
    """The packages that are run, and those that cannot be, with the reason."""

    packages: list[Package]
    unavailable: dict[str, str]


def table() -> Table:
    """Reads packages.toml."""
    read = tomllib.loads(TABLE.read_text())
    return Table([Package(**entry) for entry in read["package"]], read.get("unavailable", {}))


@contextmanager
def prepared(package: Package, interpreter: Interpreter, keep: bool) -> Iterator[Suite]:
    """Installs a package into a venv and unpacks its tests; removes both unless ``keep``. Raises NotPreparedError."""
    home = _home(package, interpreter)
    ready = home / "ready"
    if not ready.exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        _install(package, interpreter, home)
        if package.files:
            _unpack(package, interpreter, home)
        ready.touch()
    try:
        yield Suite(f"packages-{interpreter}", package.name, _command(package, home), package.limit)
    finally:
        if not keep:
            shutil.rmtree(home, ignore_errors=True)


def versions(package: Package, interpreter: Interpreter) -> list[str]:
    """Returns the packages installed for one, as `pip freeze` prints it."""
    lines = (_home(package, interpreter) / "versions").read_text().splitlines()
    return [line for line in lines if not line.startswith("nthbyte")]


def _home(package: Package, interpreter: Interpreter) -> Path:
    return BUILD / "packages" / f"{package.name}-{interpreter}"


def _install(package: Package, interpreter: Interpreter, home: Path) -> None:
    if interpreter.tree:
        raise NotPreparedError("packages are run on interpreters of this system only")
    python = str(home / "venv" / "bin" / "python")
    uv = shutil.which("uv", path=f"{BUILD / 'venv' / 'bin'}:{os.environ['PATH']}")
    if uv:
        make = [uv, "venv", "--quiet", "--python", interpreter.path, str(home / "venv")]
        install = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python]
        frozen = [uv, "pip", "freeze", "--quiet", "--python", python]
    else:
        make = [interpreter.path, "-m", "venv", str(home / "venv")]
        install = [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--prefer-binary",
        ]
        frozen = [python, "-m", "pip", "freeze"]
    _run(make)
    _run([*install, *package.requires])
    _run([*install, "--no-deps", "--no-index", *map(str, WHEELS.glob("*.whl"))])
    done = subprocess.run(frozen, capture_output=True, text=True)
    (home / "versions").write_text(done.stdout)


def _unpack(package: Package, interpreter: Interpreter, home: Path) -> None:
    sources = BUILD / "sources"
    requirement = package.source or package.requirement
    folder = sources / requirement.replace("==", "-")
    if not list(folder.glob("*.tar.gz")):
        # pip would build the package to learn its dependencies; this only fetches the file.
        program = BUILD / "venv" / "bin" / "unearth"
        version = ".".join(map(str, interpreter.python_version))
        words = ["--no-binary", "--python-version", version, "--download", str(folder), requirement]
        _run([str(program), *words])
    archives = sorted(folder.glob("*.tar.gz"))
    if not archives:
        raise NotPreparedError("there is no source distribution")
    with tarfile.open(archives[0]) as archive:
        for member in archive.getmembers():
            # Without the folder that everything is in, which has the version in its name.
            member.name = member.name.partition("/")[2]
            if any(fnmatch.fnmatch(member.name, f"{pattern}*") for pattern in package.files):
                archive.extract(member, home / "tests", filter="data")
    if not (home / "tests").exists():
        raise NotPreparedError("its source distribution has no tests")


def _run(words: Sequence[str]) -> None:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/")
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()
        raise NotPreparedError(" ".join(last[-6:]) if last else f"{words[0]} failed")


def _command(package: Package, home: Path) -> Callable[..., Command]:
    def command(folder: Path, recorded: Path, options: Sequence[str] | None, tests: Sequence[str]) -> Command:
        if package.files:
            # Each run has a copy, as tests may write beside themselves.
            shutil.copytree(home / "tests", folder, dirs_exist_ok=True, symlinks=True)
        start = folder / package.folder
        if package.runner:
            words = [
                str(INSIDE / "record.py"),
                str(recorded),
                *package.runner,
                *package.options,
                *package.tests,
            ]
        else:
            words = ["-m", "pytest", "-p", "record_pytest", "--outcomes", str(recorded)]
            words += ["-o", f"cache_dir={folder.parent / 'cache'}", "--continue-on-collection-errors"]
            # The names of tests are paths below this folder.
            root = start if package.files else next((home / "venv" / "lib").glob("python*/site-packages"))
            if not package.files:
                # The venv is inside of this repository, whose own settings are not meant.
                words += ["-c", os.devnull]
            words += [f"--rootdir={root}", *package.options, *(_files(tests, root) or package.tests)]
        profile = folder.parent / "out.nthb"
        profiled = [] if options is None else ["-m", "nthbyte", "run", "-q", "-o", str(profile), *options]
        temporary = folder.parent / "tmp"
        temporary.mkdir()
        environment = home / "venv"
        variables = {
            "PYTHONPATH": str(INSIDE),
            # Some names of tests show sets.
            "PYTHONHASHSEED": "0",
            "TMPDIR": str(temporary),
            "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
            **package.variables,
        }
        return Command([str(environment / "bin" / "python"), *profiled, *words], start, variables)

    return command


def _files(tests: Sequence[str], folder: Path) -> list[str]:
    """Returns the files that these tests are in; none if one of them cannot be told."""
    files = sorted({folder / test.partition("::")[0] for test in tests})
    return list(map(str, files)) if all(file.is_file() for file in files) else []
