"""Installs the wheels as users do, and uses them: ``python release/trial.py DIST``.

Each interpreter that the tests find gets a clean virtual environment, or in a tree of ``make interpreters``, which has
no pip, a clean folder. No compiler is on the path. In each, a program is recorded and explained, by the two commands
that the README begins with. The wheel for ARM64 is used by an emulator, if it is there with its tree.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from harness import Interpreter, interpreters, run  # noqa: E402

PROGRAM = """
import json
kept = [json.loads('{"number": %d, "items": [1.5, 2.5, 3.5]}' % number) for number in range(60_000)]
"""

ARM64 = ROOT / "build" / "emulated" / "arm64"
EMULATOR = ["qemu-aarch64", "-L", str(ARM64)]
EMULATED = ["python3.13", "python3.14", "python3.15", "pypy3"]


class Problem(Exception):
    """What went wrong, in one line."""


def main() -> int:
    """Returns the exit status."""
    dist = Path(sys.argv[1]).resolve()
    failed = 0
    for interpreter in interpreters():
        failed += _is_bad(str(interpreter), interpreter, dist)
    if not (ARM64 / "complete").exists() or not shutil.which(EMULATOR[0]):
        print("ARM64: not tried; it needs qemu-user and 'make interpreters TREES=arm64'", flush=True)
        return 1 if failed else 0
    for name in EMULATED:
        failed += _is_bad(f"{name} for ARM64, emulated", name, dist)
    return 1 if failed else 0


def _is_bad(title: str, interpreter: Interpreter | str, dist: Path) -> bool:
    """Tries an interpreter, or one of the emulator's names, and prints how it went."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        problem = None
        try:
            if isinstance(interpreter, str):
                _try_emulated(interpreter, dist, folder)
            elif interpreter.tree:
                _try_in_tree(interpreter, dist, folder)
            else:
                _try_in_venv(interpreter, dist, folder)
        except Problem as known:
            problem = str(known)
    print(f"{title}: {problem or 'installed and used'}", flush=True)
    return problem is not None


def _try_in_venv(interpreter: Interpreter, dist: Path, folder: Path) -> None:
    venv = folder / "venv"
    made = subprocess.run([interpreter.path, "-m", "venv", str(venv)], capture_output=True, text=True)
    if made.returncode:
        raise Problem(f"no virtual environment: {(made.stdout + made.stderr).strip()}")
    python = str(venv / "bin" / "python")
    _install([python], [], _wheel(dist, os.uname().machine))
    recorded = [python, "-m", "nthbyte"]
    _use(recorded, [str(venv / "bin" / "nthbyte")], "", folder)


def _try_in_tree(interpreter: Interpreter, dist: Path, folder: Path) -> None:
    site = folder / "site"
    _install([sys.executable], ["--target", str(site)], _wheel(dist, os.uname().machine))
    _use(interpreter.words(["-m", "nthbyte"], folder), [str(site / "nthbyte/bin/nthbyte")], str(site), folder)


def _try_emulated(name: str, dist: Path, folder: Path) -> None:
    site, wheel = folder / "site", _wheel(dist, "aarch64")
    platform = wheel.stem.split("-")[-1]
    words = ["--target", str(site), "--only-binary", ":all:", "--platform", platform]
    _install([sys.executable], words, wheel)
    recorded = [*EMULATOR, str(ARM64 / "usr/bin" / name), "-m", "nthbyte"]
    # Its own command reads the profile, too.
    _use(recorded, [*EMULATOR, str(site / "nthbyte/bin/nthbyte")], str(site), folder)


def _wheel(dist: Path, processor: str) -> Path:
    (wheel,) = dist.glob(f"*_{processor}.whl")
    return wheel


def _install(python: list[str], options: list[str], wheel: Path) -> None:
    words = [*python, "-m", "pip", "install", "--quiet", "--no-index", *options, str(wheel)]
    environment = {**os.environ, "PYTHONPATH": "", "PATH": "/nothing", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    installed = subprocess.run(words, capture_output=True, text=True, env=environment)
    if installed.returncode or installed.stderr.strip():
        raise Problem(f"pip: {installed.stderr.strip()}")


def _use(recorded: list[str], command: list[str], path: str, folder: Path) -> None:
    """Records the program, and explains the profile. ``path`` is Python's modules'."""
    done = run([*recorded, "run", "-o", "out.nthb", "program.py"], folder, environment={"PYTHONPATH": path})
    if done.status or not re.search(r"nthbyte: [\d,]+ samples", done.err):
        raise Problem(f"nthbyte run: {done.status}: {done.err.strip()}")
    explained = run([*command, "explain", "out.nthb"], folder, environment={"PATH": "/usr/bin"})
    if explained.status or "program.py" not in explained.out:
        raise Problem(f"nthbyte explain: {explained.status}: {explained.err.strip()}")


if __name__ == "__main__":
    sys.exit(main())
