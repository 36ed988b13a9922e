"""Installs the wheel for this processor as users do, and uses it: ``python release/trial.py DIST``.

Each interpreter that the tests find gets a clean virtual environment, or in a tree of ``make interpreters``, which has
no pip, a clean folder. No compiler is on the path. In each, the README's example is run and reported.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from harness import Interpreter, interpreters  # noqa: E402

PROGRAM = """
import json
kept = [json.loads('{"number": %d, "items": [1.5, 2.5, 3.5]}' % number) for number in range(60_000)]
"""


def main() -> int:
    """Returns the exit status."""
    dist = Path(sys.argv[1])
    (wheel,) = dist.glob(f"*_{os.uname().machine}.whl")
    failed = False
    for interpreter in interpreters():
        with tempfile.TemporaryDirectory() as folder:
            problem = _try(interpreter, wheel.resolve(), Path(folder))
        print(f"{interpreter}: {problem or 'installed and used'}", flush=True)
        failed |= problem is not None
    return 1 if failed else 0


def _try(interpreter: Interpreter, wheel: Path, folder: Path) -> str | None:
    """Returns what went wrong, if something did."""
    (folder / "program.py").write_text(PROGRAM)
    if interpreter.tree:
        site = folder / "site"
        words = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-index",
            "--target",
            str(site),
            str(wheel),
        ]
        python = interpreter
        command = [str(site / "nthbyte" / "bin" / "nthbyte")]
        environment = {"PYTHONPATH": str(site)}
    else:
        venv = folder / "venv"
        made = subprocess.run([interpreter.path, "-m", "venv", str(venv)], capture_output=True, text=True)
        if made.returncode:
            return f"no virtual environment: {(made.stdout + made.stderr).strip()}"
        words = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-index", str(wheel)]
        python = Interpreter(str(venv / "bin" / "python"))
        command = [str(venv / "bin" / "nthbyte")]
        environment = {"PYTHONPATH": ""}
    environment.update({"PATH": "/nothing", "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    installed = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **environment})
    if installed.returncode or installed.stderr.strip():
        return f"pip: {installed.stderr.strip()}"
    # What enters a tree is on the path of this system.
    environment["PATH"] = os.environ["PATH"]
    done = python.nthbyte("run", "-o", "out.nthb", "program.py", folder=folder, environment=environment)
    if done.status or not re.search(r"nthbyte: [\d,]+ samples", done.err):
        return f"nthbyte run: {done.status}: {done.err.strip()}"
    explained = subprocess.run(
        [*command, "explain", "out.nthb"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin"},
    )
    if explained.returncode or "program.py" not in explained.stdout:
        return f"nthbyte explain: {explained.stderr.strip()}"
    return None


if __name__ == "__main__":
    sys.exit(main())
