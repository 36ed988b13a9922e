"""One run of a suite: the command, its environment, and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# How a command ends that had to be ended.
TIMED_OUT = -1000


@dataclass(frozen=True)
class Command:
    """A command line with its folder and what it adds to the environment."""

    words: Sequence[str]
    folder: Path
    variables: Mapping[str, str]


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    status: int
    """Its exit status, minus the number of the signal that ended it, or TIMED_OUT."""
    seconds: float

    @property
    def timed_out(self) -> bool:
        """Whether it took longer than its limit."""
        return self.status == TIMED_OUT


def execute(command: Command, output: Path, limit: float) -> Ended:
    """Runs a command for at most ``limit`` seconds, its output in a file; ends all that it leaves behind."""
    # Neither the terminal nor the caller's Python have a say in what the tests see.
    left_out = ("PYTHONHOME", "COLUMNS", "LINES", "PYTEST_ADDOPTS", "MAKEFLAGS", "MAKELEVEL", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    start = time.monotonic()
    with output.open("wb") as file:
        process = subprocess.Popen(
            command.words,
            cwd=command.folder,
            env={**kept, "PYTHONDONTWRITEBYTECODE": "1", "CI": "1", **command.variables},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # A parent process may ignore SIGINT, and then Python would not receive it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
        )
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = TIMED_OUT
        seconds = time.monotonic() - start
        # What the tests started may have left their group; processes orphaned by then are not found.
        _end([process.pid, *_descendants(process.pid)])
        process.wait()
    return Ended(status, seconds)


def _descendants(pid: int) -> list[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # The name of the program, in brackets, may contain anything.
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, UnicodeDecodeError):
                continue
    found, new = [], [pid]
    while new:
        new = [child for child, parent in parents.items() if parent in new]
        found += new
    return found


def _end(processes: Sequence[int]) -> None:
    leader = processes[0]
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        # The group has ended.
        pass
    for process in processes[1:]:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            # It has ended with its group.
            pass
