"""Installs the wheels as users do, and uses them: ``python release/trial.py DIST``.

Each interpreter that the tests find gets a clean virtual environment, or in a tree of ``make interpreters``, which has
no pip, a clean folder. In the trees of ``build/trial``, Debian's own pip installs. No compiler is on the path.
In each, a program is recorded and explained, by the two commands that the README begins with. The wheel for ARM64 is
used by an emulator, if it is there with its trees.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from harness import Interpreter, interpreters, run  # noqa: E402

PROGRAM = """
import json
kept = [json.loads('{"number": %d, "items": [1.5, 2.5, 3.5]}' % number) for number in range(60_000)]
"""

ARM64 = ROOT / "build" / "emulated" / "arm64"
TRIAL = ROOT / "build" / "trial"
EMULATOR = "qemu-aarch64"
# Trees, and the interpreters there.
CLEAN = {
    "bookworm": ["/usr/bin/python3", "/usr/bin/pypy3"],
    "trixie": ["/usr/bin/python3", "/usr/bin/pypy3"],
}
EMULATED = {
    ARM64: ["python3.13", "python3.14", "python3.15", "pypy3"],
    TRIAL / "arm64-bookworm": ["python3", "pypy3"],
    TRIAL / "arm64-trixie": ["python3", "pypy3"],
}


class Problem(Exception):
    """What went wrong, in one line."""


class Emulated(NamedTuple):
    """A Python for ARM64, in a tree that cannot be entered."""

    path: str
    tree: str

    def __str__(self) -> str:
        return f"{Path(self.path).name} of {Path(self.tree).name}, emulated"

    def words(self, arguments: list[str], folder: str | Path) -> list[str]:
        """The command line that runs it."""
        return [EMULATOR, "-L", self.tree, f"{self.tree}{self.path}", *arguments]


def main() -> int:
    """Returns the exit status."""
    dist = Path(sys.argv[1]).resolve()
    for wheel in sorted(dist.glob("*.whl")):
        print(f"{wheel.name}: {wheel.stat().st_size:,} bytes")
    everything: list[Interpreter | Emulated] = [*interpreters(), *_clean(), *_emulated()]
    tried = [_is_good(interpreter, dist) for interpreter in everything]
    print(f"{sum(tried)} of {len(tried)} interpreters: installed, recorded, explained")
    return 0 if all(tried) else 1


def _clean() -> list[Interpreter]:
    """The interpreters of a Debian of its own for this machine."""
    found: list[Interpreter] = []
    for suite, paths in CLEAN.items():
        if (TRIAL / suite / "complete").exists():
            found += [Interpreter(path, str(TRIAL / suite)) for path in paths]
        else:
            print(f"a clean {suite}: not tried; it needs root, and debootstrap")
    return found


def _emulated() -> list[Emulated]:
    """The interpreters for ARM64."""
    found: list[Emulated] = []
    for tree, names in EMULATED.items():
        if (tree / "complete").exists() and shutil.which(EMULATOR):
            found += [Emulated(f"/usr/bin/{name}", str(tree)) for name in names]
        else:
            print(f"{tree.name}: not tried; it needs root, debootstrap and qemu-user")
    return found


def _is_good(interpreter: Interpreter | Emulated, dist: Path) -> bool:
    """Tries an interpreter, and prints how it went."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        problem = None
        try:
            if interpreter.tree:
                _try_in_tree(interpreter, dist, folder)
            else:
                _try_in_venv(interpreter, dist, folder)
        except Problem as known:
            problem = str(known)
    print(f"{interpreter}: {problem or 'installed and used'}", flush=True)
    return problem is None


def _try_in_venv(interpreter: Interpreter | Emulated, dist: Path, folder: Path) -> None:
    venv = folder / "venv"
    made = subprocess.run([interpreter.path, "-m", "venv", str(venv)], capture_output=True, text=True)
    if made.returncode:
        raise Problem(f"no virtual environment: {(made.stdout + made.stderr).strip()}")
    python = str(venv / "bin" / "python")
    _install([python], [], _wheel(dist, os.uname().machine))
    recorded = [python, "-m", "nthbyte"]
    _use(recorded, [str(venv / "bin" / "nthbyte")], "", folder)


def _try_in_tree(interpreter: Interpreter | Emulated, dist: Path, folder: Path) -> None:
    site = folder / "site"
    wheel = _wheel(dist, "aarch64" if isinstance(interpreter, Emulated) else os.uname().machine)
    if (
        Path(str(interpreter.tree)) / "usr/lib/python3/dist-packages/pip"
    ).exists() and "pypy" not in interpreter.path:
        # A copy, for the tree does not have the folder of the wheels.
        wheel = Path(shutil.copy(wheel, folder))
        _install(interpreter.words([], folder), ["--target", str(site)], wheel)
    else:
        platform = ["--only-binary", ":all:", "--platform", wheel.stem.split("-")[-1]]
        _install([sys.executable], ["--target", str(site), *platform], wheel)
    command = str(site / "nthbyte/bin/nthbyte")
    if isinstance(interpreter, Emulated):
        explains = [EMULATOR, "-L", interpreter.tree, command]
    else:
        explains = Interpreter(command, interpreter.tree).words([], folder)
    _use(interpreter.words(["-m", "nthbyte"], folder), explains, str(site), folder)


def _wheel(dist: Path, processor: str) -> Path:
    wheel = next(dist.glob(f"*_{processor}.whl"), None)
    if wheel is None:
        raise Problem(f"there is no wheel for {processor} in {dist.name}/")
    return wheel


def _install(python: list[str], options: list[str], wheel: Path) -> None:
    words = [*python, "-m", "pip", "install", "--quiet", "--no-index", *options, str(wheel)]
    environment = {**os.environ, "PYTHONPATH": "", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment["PIP_ROOT_USER_ACTION"] = "ignore"
    # The programs that enter a tree are found; compilers are not there.
    environment["PATH"] = "/nothing" if Path(words[0]).is_absolute() else os.environ["PATH"]
    installed = subprocess.run(words, capture_output=True, text=True, env=environment)
    if installed.returncode or installed.stderr.strip():
        raise Problem(f"pip: {installed.stderr.strip()}")


def _use(recorded: list[str], command: list[str], path: str, folder: Path) -> None:
    """Records the program, and explains the profile. ``path`` is Python's modules'."""
    done = run([*recorded, "run", "-o", "out.nthb", "program.py"], folder, environment={"PYTHONPATH": path})
    if done.status or not re.search(r"nthbyte: [\d,]+ samples", done.err):
        raise Problem(f"nthbyte run: {done.status}: {done.err.strip()}")
    explained = run(
        [*command, "explain", "out.nthb"], folder, environment={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
    )
    if explained.status or "program.py" not in explained.out:
        raise Problem(f"nthbyte explain: {explained.status}: {explained.err.strip()}")


if __name__ == "__main__":
    sys.exit(main())
