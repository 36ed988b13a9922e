"""The line that ``nthbyte run`` prints when the program has ended.

The agent has the texts (``crates/session/src/end_line.rs``): programs without Python print them, too.
"""

from __future__ import annotations

# Not signal, which imports enum. Not later: the program may leave nothing to import.
import _signal  # type: ignore[import-not-found]
import os
import sys
import time

from nthbyte import _session
from nthbyte._agent import Error, load
from nthbyte._family import MOST_PROFILES, left_out
from nthbyte._session import finish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

    from nthbyte._agent import Result


WORTH_SAYING = 0.1
"""CPU seconds from which on processes without a profile are mentioned."""


class EndLine:
    """Ends the session and prints one line: the number of samples, and the command that shows them.

    ``folder`` is the working directory when the program began, where the user enters the next command.
    """

    def __init__(self, path: str, folder: str):
        self.path = path
        """The path of the profile."""
        self._pid = os.getpid()
        self._started = time.time_ns()
        self._folder = folder

    def __call__(self) -> None:
        try:
            result = finish()
        except Error:
            # The program has stopped the session, or none was started.
            return
        if os.getpid() == self._pid:
            say(self.text(result))

    def at_signal(self, path: str) -> str | None:
        """Returns the line for the case that SIGTERM ends the program. What was recorded is not known before.

        ``path`` is the profile's. None if it is no file to look at.
        """
        return line_at_signal("SIGTERM", path, self._folder)

    def text(self, result: Result, folder: str | None = None) -> str:
        """Returns the line for a session's result, for somebody in ``folder``; without it, in the folder of before."""
        agent = load()
        recorded: set[str] = set()
        if not result.is_stalled:
            # Where it is, nobody looks into the folder: its file system may be dead.
            recorded.update(agent.say("children", path=self.path, since=self._started).split(","))
            recorded.discard("")
        remarks = []
        if others := left_out(recorded):
            is_full = len(recorded) >= MOST_PROFILES
            reason = f": a family has {MOST_PROFILES} profiles at most" if is_full else ""
            remarks.append(f"not recorded: {', '.join(others)}{reason}")
        if not recorded and (seconds := _cpu_seconds_of_children()) >= WORTH_SAYING:
            remarks.append(
                f"processes that it started used {seconds:.1f} s of CPU time and are not in the profile"
            )
        notes = list(result.notes)
        if _session.native_problem:
            notes.insert(0, f"native memory was not recorded: {_session.native_problem}")
        return agent.say(
            "line",
            samples=result.samples,
            time_samples=result.time_samples,
            lost=result.lost,
            notes=notes,
            is_stalled=result.is_stalled,
            children=len(recorded),
            remarks=remarks,
            path=result.path,
            folder=folder or self._folder,
        )


def line_at_signal(signal: str, path: str, folder: str) -> str | None:
    """Returns the line for a program that a signal ends; see :meth:`EndLine.at_signal`."""
    return load().say("at_signal", signal=signal, path=path, folder=folder) or None


def renamed(wanted: str, path: str, folder: str) -> str:
    """Says that a profile has another name than the wanted one, and how to replace the file of that name."""
    return load().say("renamed", wanted=wanted, path=path, folder=folder)


def _cpu_seconds_of_children() -> float:
    """The CPU time of the processes that the program has started, whether it has waited for them or not."""
    times = os.times()
    seconds = times.children_user + times.children_system - load().snapshot_seconds()
    try:
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children", "rb") as file:
                children = file.read().split()
            seconds += sum(_cpu_seconds(int(child)) for child in children)
    except OSError:
        # A thread has just ended, or the kernel was built without this file.
        pass
    return seconds


def _cpu_seconds(process: int) -> float:
    with open(f"/proc/{process}/stat", "rb") as file:
        # The name of the program may contain spaces and brackets.
        fields = file.read().rpartition(b")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def say(text: str) -> None:
    """Prints a line on stderr, if there is one. If nobody reads it any more, that does not end the program."""
    stderr = sys.__stderr__
    if stderr is None:
        return
    pipe = {_signal.SIGPIPE}
    blocked = pipe - _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
    try:
        # It runs handlers of signals that have come, which may raise.
        _signal.pthread_sigmask(_signal.SIG_BLOCK, pipe)
        was_raised = pipe <= _signal.sigpending()
        try:
            _write(stderr, f"nthbyte: {text}\n")
        except (AttributeError, OSError, ValueError):
            # The program has closed stderr, or put something else in its place.
            pass
        finally:
            if not was_raised and pipe <= _signal.sigpending():
                _signal.sigwait(pipe)
    finally:
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, blocked)


def _write(stderr: TextIO, line: str) -> None:
    stderr.flush()
    try:
        descriptor, encoding = stderr.fileno(), stderr.encoding
    except (AttributeError, OSError):
        # An object of the program, which need not be a file.
        stderr.write(line)
        stderr.flush()
    else:
        # Past its buffer: at its end, the interpreter would write again what nobody has read, and SIGPIPE would end
        # the program.
        os.write(descriptor, line.encode(encoding, "backslashreplace"))
