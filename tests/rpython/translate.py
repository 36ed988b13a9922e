"""Translates the programs of tests/rpython with RPython, into a folder: ``python translate.py FOLDER``.

RPython is a subset of Python 2, and its translator runs with that. Where there is no Python 2.7, nothing is made,
and the tests are skipped. ``PYTHON27`` names one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
# As --opt says, and as a program is shipped: with and without symbols.
STRIPPED = ("allocate_alot",)


def candidates() -> Iterator[Path]:
    """Yields where a Python 2.7 may be."""
    named = os.environ.get("PYTHON27") or shutil.which("python2.7")
    if named:
        yield Path(named)
    yield from sorted((Path.home() / ".pyenv" / "versions").glob("2.7.*/bin/python2.7"))


def python27() -> Path | None:
    """Returns a Python 2.7, if there is one that runs."""

    def runs(path: Path) -> bool:
        try:
            return subprocess.run([path, "-m", "pip", "--version"], capture_output=True).returncode == 0
        except OSError:
            return False

    return next(filter(runs, candidates()), None)


def translate(folder: Path) -> None:
    """Translates all programs. A program of 60 lines takes half a minute."""
    python = python27()
    if python is None:
        print(
            "nthbyte: there is no Python 2.7 (PYTHON27=...): the tests of RPython are skipped",
            file=sys.stderr,
        )
        return
    folder.mkdir(parents=True, exist_ok=True)
    packages = folder / "packages"
    if not (packages / "rpython").exists():
        words = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run(
            [*words, "--target", packages, "-r", HERE / "requirements.txt"],
            check=True,
            stderr=subprocess.DEVNULL,
        )
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    for source in sorted(PROGRAMS.glob("*.py")):
        made = folder / source.stem
        print(f"nthbyte: translating {source.name}", file=sys.stderr)
        done = subprocess.run(
            [python, "-B", "-m", "rpython", "--batch", f"--output={made}", source],
            env=environment,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        if done.returncode != 0:
            sys.exit(f"{done.stdout[-4000:]}\n{source.name} was not translated")
    for name in STRIPPED:
        subprocess.run(["strip", "-o", folder / f"{name}.stripped", folder / name], check=True)


if __name__ == "__main__":
    translate(Path(sys.argv[1]).resolve())
