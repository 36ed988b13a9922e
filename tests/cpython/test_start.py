"""The system calls that the start and the end of a session add to a program's."""

from __future__ import annotations

import collections
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from harness import SITE, Interpreter

# Upper bounds of the calls that nthbyte adds. The counts vary by some calls, with the order in which threads run, and
# with the number of libraries that the interpreter has loaded.
MOST = {
    # Probes of memory. A call at each of the allocations that the start observes would be 200 more.
    "getpid": 60,
    # Reads of memory that may be unmapped, most of them of the interpreter's structures (`verify`).
    "process_vm_readv": 300,
    # Pages that are released.
    "madvise": 90,
    "read": 120,
    "openat": 65,
    "clone3": 3,
}
MOST_IN_ALL = 1100


def system_calls(interpreter: Interpreter, arguments: list[str], folder: Path) -> collections.Counter[str]:
    """How often a program makes each system call, from its `execve` on."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("needs strace")
    trace = folder / "trace"
    words = [strace, "-f", "-qq", "-o", str(trace), *interpreter.words(arguments, folder)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PYTHONPATH"] = str(SITE)
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    if "ptrace" in done.stderr and done.returncode != 0:
        pytest.skip("processes may not be traced here")
    assert done.returncode == 0, done.stderr
    lines = trace.read_text(errors="replace").splitlines()
    # In the folder of another Debian, other programs come first.
    begin = max(
        at for at, line in enumerate(lines) if re.search(r" execve\(.* = 0$|execve resumed>.* = 0$", line)
    )
    names = (re.match(r"\d+ +(\w+)\(", line) for line in lines[begin:])
    return collections.Counter(name[1] for name in names if name)


def test_the_start_makes_few_system_calls(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("pass")
    # The first run of each writes the compiled modules.
    cpython.nthbyte("run", "-q", "app.py", folder=tmp_path).ok()
    plain = system_calls(cpython, ["app.py"], tmp_path)
    profiled = system_calls(cpython, ["-m", "nthbyte", "run", "-q", "app.py"], tmp_path)
    more = {name: profiled[name] - plain[name] for name in MOST}
    assert {name: count for name, count in more.items() if count > MOST[name]} == {}
    assert profiled.total() - plain.total() <= MOST_IN_ALL
