"""The line that ``nthbyte run`` prints when the program has ended.

A program without Python has the same (``crates/program/src/end_line.rs``): ``tests/end_lines.json`` has texts for both.
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
        self._started = time.time()
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

        ``path`` is that of the profile. None if it is no file to look at.
        """
        return line_at_signal("SIGTERM", path, self._folder)

    def text(self, result: Result, folder: str | None = None) -> str:
        """Returns the line for a session's result, for somebody in ``folder``; without it, in the folder of before."""
        path = shortest(result.path, folder or self._folder)
        parts = ["1 sample" if result.samples == 1 else f"{result.samples:,} samples"]
        if result.time_samples:
            parts.append(
                "1 time sample" if result.time_samples == 1 else f"{result.time_samples:,} time samples"
            )
        recorded: set[str] = set()
        if not result.is_stalled:
            recorded = set(profiles_of_children(self.path, self._started).values())
        children = len(recorded)
        if children:
            parts.append("1 child process" if children == 1 else f"{children} child processes")
        if others := left_out(recorded):
            reason = f": a family has {MOST_PROFILES} profiles at most" if children >= MOST_PROFILES else ""
            parts.append(f"not recorded: {', '.join(others)}{reason}")
        if not children and (seconds := _cpu_seconds_of_children()) >= WORTH_SAYING:
            parts.append(
                f"processes that it started used {seconds:.1f} s of CPU time and are not in the profile"
            )
        if result.lost:
            parts.append("1 event lost" if result.lost == 1 else f"{result.lost:,} events lost")
        if _session.native_problem:
            parts.append(f"native memory was not recorded: {_session.native_problem}")
        parts.extend(note.rstrip(".") for note in result.notes)
        if result.is_stalled or not os.path.isfile(result.path):
            # Its file system may be dead; or it is such a file as /dev/null.
            return ", ".join(parts)
        return f"{', '.join(parts)}; see it with: nthbyte explain {quoted(path)}"


def line_at_signal(signal: str, path: str, folder: str) -> str | None:
    """Returns the line for a program that a signal ends; see :meth:`EndLine.at_signal`."""
    if not os.path.isfile(path):
        return None
    return f"nthbyte: ended by {signal}; see it with: nthbyte explain {quoted(shortest(path, folder))}\n"


def profiles_of_children(path: str, since: float) -> dict[str, str]:
    """Returns the paths of the profiles of processes that this one has started, with the processes' numbers.

    They lie beside the profile ``path`` of this process: ``app.1234.nthb`` beside ``app.nthb``. A process may have
    several: ``app.1234-2.nthb``. ``since`` is the time of their last change, at the least, in seconds of Unix time.
    """
    stem, suffix = os.path.splitext(path)
    folder, start = os.path.split(stem + ".")
    found = {}
    try:
        for entry in os.scandir(folder):
            name = entry.name
            if name.startswith(start) and name.endswith(suffix):
                process, sign, again = name[len(start) : len(name) - len(suffix)].partition("-")
                is_member = process.isdecimal() and (again.isdecimal() or not sign)
                if is_member and entry.stat().st_mtime >= since:
                    found[entry.path] = process
    except OSError:
        # The folder cannot be read any more.
        pass
    return found


def shortest(path: str, folder: str) -> str:
    """Returns the path, or the one from ``folder``, whichever is shorter."""
    relative = os.path.relpath(path, folder)
    return relative if len(relative) < len(path) else path


def quoted(path: str) -> str:
    """Returns a path as a shell takes it, and the command as no option."""
    if path.startswith("-"):
        path = f"./{path}"
    # `shlex` would import `re`.
    if all(sign.isalnum() or sign in "-_./=:+,@%" for sign in path):
        return path
    return "'" + path.replace("'", "'\\''") + "'"


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
