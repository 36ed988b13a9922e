"""The interpreters to measure with, and the commands that run programs under nthbyte.

They are the tests' (``tests/harness.py``). All use the packages of the benchmarks' virtual environment and the nthbyte
in it: nearly all are pure Python, and the wheel serves every version.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
ROOT = BENCH.parent
PROGRAMS = BENCH / "programs"
# What quick runs have in place of the real programs.
SHORT = BENCH / "evaluation" / "probes" / "short.py"
sys.path.append(str(ROOT / "tests"))

import harness  # noqa: E402

# The script of nthbyte beside this interpreter. It imports less than ``-m nthbyte``.
SCRIPT = Path(sys.executable).parent / "nthbyte"
PACKAGES = sysconfig.get_path("purelib")


@dataclass(frozen=True)
class Interpreter:
    """A Python to measure with."""

    about: harness.Interpreter | None
    """None for the one that runs this."""
    name: str
    """``CPython 3.13.0``"""

    @property
    def tree(self) -> str | None:
        """The folder of its Debian; None for an interpreter of this system."""
        return self.about.tree if self.about else None

    @property
    def path(self) -> str:
        """Inside of its Debian."""
        return self.about.path if self.about else sys.executable

    @property
    def version(self) -> tuple[int, int]:
        """The version of the language: (3, 13)."""
        return self.about.python_version if self.about else sys.version_info[:2]

    @property
    def is_pypy(self) -> bool:
        """Whether it is PyPy."""
        return self.about is not None and self.about.is_pypy

    def words(self, arguments: list[str], folder: Path) -> list[str]:
        """The command line that runs it in a folder."""
        return self.about.words(arguments, folder) if self.about else [sys.executable, *arguments]

    def environment(self) -> dict[str, str]:
        """The environment of its processes, without what would make two runs differ."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NTHBYTE"))
        }
        added = {"PYTHONHASHSEED": "0"}
        if self.about:
            added["PYTHONPATH"] = PACKAGES
        return kept | added


@functools.cache
def own() -> Interpreter:
    """The interpreter that runs this: the one of the benchmarks' virtual environment."""
    return Interpreter(None, f"CPython {sys.version.split()[0]}")


@functools.cache
def all_of_them() -> list[Interpreter]:
    """One for each CPython from 3.11 to 3.15, and one for each PyPy. A distribution's build, which is what most people run,
    goes before one of pyenv, and a newer patch version before an older one."""
    best: dict[object, tuple[tuple[bool, list[int]], Interpreter]] = {}
    for one in harness.interpreters():
        kind, patch, version, _ = one.about
        name = f"{'PyPy' if one.is_pypy else 'CPython'} {'.'.join(map(str, patch))}"
        key = name if one.is_pypy else (kind, *version)
        rank = ("pyenv" not in one.path, patch)
        if key not in best or best[key][0] <= rank:
            best[key] = (rank, Interpreter(one, name))
    return [one for _, one in best.values()]


def cpythons() -> list[Interpreter]:
    """The CPythons among them, oldest first."""
    return sorted((one for one in all_of_them() if not one.is_pypy), key=lambda one: one.version)


def pypys() -> list[Interpreter]:
    """The PyPys among them."""
    return [one for one in all_of_them() if one.is_pypy]


def scripts(only: list[str] | None = None) -> list[Path]:
    """The real programs with these names, or all."""
    found = [path for path in sorted(PROGRAMS.glob("*.py")) if path.stem != "corpus"]
    return [path for path in found if path.stem in only] if only else found


def profiled(
    interpreter: Interpreter, profile: Path, program: list[str], every: str = "512KiB", *options: str
) -> list[str]:
    """The command that runs a program under nthbyte, always with the same seed."""
    chosen = ["--seed", "1", "--every", every, *options, "-o", str(profile)]
    return [interpreter.path, str(SCRIPT), "run", "-q", "-f", *chosen, *program]
