"""Finds the programs and packages that the tests need; skips or fails if they are missing."""

from __future__ import annotations

import fcntl
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

import harness

HERE = Path(__file__).resolve().parent

# For each version of VMProf, the newest Python of pyenv that it supports.
_PYTHON_OF_VMPROF = {"0.6.0": "3.11", "0.5.0": "3.9", "0.4.18.1": "3.8"}


def missing(what: str) -> NoReturn:
    """Skips the test, or fails it if everything is required."""
    if os.environ.get("NTHBYTE_REQUIRE_ALL") == "1":
        pytest.fail(f"{what}, and NTHBYTE_REQUIRE_ALL=1")
    pytest.skip(what)


def node_modules(path: str) -> Path:
    """Returns a file that `npm ci` in this folder installs."""
    found = HERE / "node_modules" / path
    if not found.exists():
        missing(f"{path} is missing: run `npm ci` in tests/formats")
    return found


def module(name: str) -> Any:
    """Returns a module that requirements.txt in this folder names."""
    try:
        return importlib.import_module(name)
    except ImportError:
        missing(f"{name} is missing: pip install -r tests/formats/requirements.txt")


def vmprof_python(version: str) -> str:
    """Returns a Python with this version of VMProf, from a venv that is created once."""
    folder = harness.REPOSITORY / "build" / "vmprof" / version
    python = folder / "bin" / "python"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        # Tests run in several processes.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            base = _python(_PYTHON_OF_VMPROF[version])
            subprocess.run([base, "-m", "venv", "--clear", str(folder)], check=True, timeout=300)
            words = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            done = subprocess.run([*words, f"vmprof=={version}"], capture_output=True, text=True, timeout=590)
            if done.returncode != 0:
                missing(f"vmprof {version} could not be installed: {done.stderr[-300:]}")
            (folder / "ready").touch()
    return str(python)


def _python(minor: str) -> str:
    if sys.version_info[:2] == tuple(map(int, minor.split("."))):
        return sys.executable
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = sorted(root.glob(f"versions/{minor}.*/bin/python"))
    if not found:
        missing(f"no Python {minor}")
    return str(found[-1])
