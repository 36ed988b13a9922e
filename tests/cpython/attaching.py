"""Programs that run while a test attaches to them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import harness

# Prints a line once the program runs, so that nobody attaches to its start.
HELLO = "print('here', flush=True)\n"

# Whether a line has come: a program goes on until then, however slow the machine is.
GOES = "import select\ndef goes(): return not select.select([0], [], [], 0)[0]\n"


@dataclass
class Running:
    """A program that runs."""

    process: subprocess.Popen[str]
    folder: Path
    inside: int | None = None
    """The number of the program, if another process has started it."""

    @property
    def number(self) -> int:
        """The number of the program."""
        return self.inside or self.process.pid

    def nthbyte(self, command: str, *options: str | Path, **variables: Any) -> harness.Done:
        """Runs ``nthbyte COMMAND PID``, the command alone: it needs no interpreter."""
        words = [str(harness.COMMAND), command, str(self.number), *map(str, options)]
        return harness.run(words, self.folder, **variables)

    def attach(self, *options: str | Path) -> subprocess.Popen[str]:
        """Begins ``nthbyte attach PID``, whose standard error is read by its caller."""
        words = [str(harness.COMMAND), "attach", str(self.number), *map(str, options)]
        return subprocess.Popen(words, cwd=self.folder, stderr=subprocess.PIPE, text=True)

    def say(self, line: str = "go on") -> None:
        """Writes a line to the program's standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def until_it_waits(self) -> None:
        """Waits until the main thread sleeps."""
        while harness.process_fields(self.number)[0] != "S":
            time.sleep(0.01)

    def line(self) -> str:
        """The next line that the program prints."""
        assert self.process.stdout is not None
        line = b""
        # One byte at a time: what a buffer had read ahead would be missing from what `communicate` returns.
        while not line.endswith(b"\n") and (byte := os.read(self.process.stdout.fileno(), 1)):
            line += byte
        return line.decode().rstrip("\n")

    def end(self, stdin: str = "") -> harness.Done:
        """Waits for the program."""
        try:
            out, err = self.process.communicate(stdin, 600)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return harness.Done(self.process.returncode, out, err)


@contextmanager
def running(interpreter: harness.Interpreter, code: str, folder: Path, **variables: str) -> Iterator[Running]:
    """Runs code in a new process, until it has printed its first line. The process knows nothing of nthbyte."""
    program = folder / "program.py"
    program.write_text(HELLO + code)
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    process = subprocess.Popen(
        interpreter.words([str(program)], folder),
        cwd=folder,
        env={**own, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    one = Running(process, folder)
    try:
        assert one.line() == "here", process.communicate()[1]
        yield one
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


# A container: processes, users, files and network of its own. Some folders of the system are not there, or it has the
# files of another one.
_ENTER = """
mode=$1 root=$2 && shift 2 && mount -t proc none "$root/proc" &&
if [ -n "$root" ]; then mount --rbind /dev "$root/dev" || exit 1; fi &&
while [ "$1" != -- ]; do mount -t tmpfs none "$1" || exit 1; shift; done && shift &&
for folder in /tmp /var/tmp /dev/shm /run; do mount -t tmpfs -o "$mode" none "$root$folder" || exit 1; done
exec ${root:+chroot "$root"} "$@"
"""

_UNSHARE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount", "--net"]


def in_container(
    interpreter: harness.Interpreter, code: str, folder: Path, hidden: list[Path], mode: str
) -> Running:
    """Runs code in namespaces of its own, until it has printed its first line. Its folders for files of the moment are
    mounted with the option ``mode``: ``rw``, ``ro``, ``noexec``."""
    if os.geteuid() != 0:
        pytest.skip("only root can enter another root folder")
    if harness.run([*_UNSHARE, "true"], folder).status != 0:
        pytest.skip("this machine allows no user namespaces")
    # Nothing of this system is in another one.
    hidden = [] if interpreter.tree else hidden
    words = [mode, interpreter.tree or "", *map(str, hidden), "--", interpreter.path, "-c", code]
    process = subprocess.Popen(
        [*_UNSHARE, "sh", "-c", _ENTER, "sh", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
    )
    one = Running(process, folder)
    assert one.line() == "here"
    [inside] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    one.inside = int(inside)
    return one
