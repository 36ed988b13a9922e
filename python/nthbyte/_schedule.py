"""Recordings of a part of a program's run: ``--start-after``, ``--for`` and ``--signal``.

Until a recording begins, nothing is done. A thread of this module waits for the next time, if there is one. CPython
3.12 and later warn of a fork in a process with several threads, so the thread ends before a fork and is started again
after it, in the child too.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
import atexit
import os
import sys
import time

from nthbyte._agent import Error, load
from nthbyte._children import child_path
from nthbyte._end_line import EndLine, renamed, say
from nthbyte._session import begin, exiting, is_running

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from nthbyte._config import Config

# The longest wait for the end of a thread before a fork, and for the end of a recording at the exit, in seconds.
_LONGEST_WAIT = 0.2
_LONGEST_END = 10.0


class Schedule:
    """Begins and ends recordings of this process and of its forked children."""

    def __init__(
        self,
        config: Config,
        *,
        force: bool,
        is_quiet: bool,
        with_children: bool = True,
        start_after: float | None,
        length: float | None,
        signal: int | None,
    ):
        self._config = config
        self._force = force
        # The path of the first recording, which children's have in their names. Children may begin before it.
        self._first = config["output"]
        # The real paths of this process's recordings.
        self._recorded: set[str] = set()
        self._is_quiet = is_quiet
        self._with_children = with_children
        self._start_after = start_after
        self._length = length
        self._signal = signal
        self._pid = os.getpid()
        self._folder = os.getcwd()
        self._started = time.time_ns()
        self._has_begun = False
        self._alarm: _Alarm | None = None
        # Held while an alarm begins or ends a recording.
        self._acting = _thread.allocate_lock()
        # The threads that hold it because they fork.
        self._forking: set[int] = set()
        self._is_exiting = False

    def run(self) -> None:
        """Begins now, or prepares for later. Raises Error if a recording cannot begin now, or not be awaited."""
        if self._signal is not None:
            try:
                _signal.signal(self._signal, self._toggle)
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else error
                raise Error(
                    f"the signal {self._signal} cannot be handled ({reason}); take USR1, for example"
                ) from None
        if not self._force:
            self._first = load().free_name(self._config["output"])
        os.register_at_fork(
            before=self._before_fork,
            after_in_parent=self._after_fork_in_parent,
            after_in_child=self._after_fork_in_child,
        )
        if sys.implementation.name == "pypy":
            _call_in_forked_children(self._after_fork)
        if self._start_after is not None:
            self._alarm = _Alarm(time.monotonic() + self._start_after, self._begin_in_time)
        elif self._signal is None:
            self._begin()
        atexit.register(self._at_exit)

    def _toggle(self, signal: int, frame: Any) -> None:
        if is_running():
            self._end()
        else:
            self._begin_or_print()

    def _begin_or_print(self) -> None:
        try:
            self._begin()
        except Error as error:
            say(str(error))

    def _begin(self) -> None:
        is_child = os.getpid() != self._pid
        if is_running() or (is_child and not self._with_children):
            return
        self._cancel()
        config, force, family, line = self._config, self._force, None, None
        if is_child:
            # Profiles of children replace nothing.
            force = False
            family = self._first
            path = child_path(family, os.getpid())
            config = {**config, "output": path, "parent_pid": self._pid}
        elif not self._is_quiet:
            line = EndLine(config["output"], self._folder)
        at_signal = line.at_signal if line is not None else None
        path = begin(
            config,
            family=family,
            force=force,
            kept=self._recorded,
            at_exit=line,
            at_signal=at_signal,
            exports=self._with_children,
        )
        if line is not None:
            line.path = path
        if path != config["output"]:
            say(self._named(config["output"], path))
        if os.path.isfile(path):
            # The next recording does not replace this one; a device or a pipe takes all.
            self._recorded.add(os.path.realpath(path))
        self._has_begun = True
        if self._length is not None:
            try:
                self._alarm = _Alarm(time.monotonic() + self._length, self._end_in_time)
            except Error as error:
                say(f"{error}: the recording ends with the program")

    def _named(self, wanted: str, path: str) -> str:
        """Says which name a profile has."""
        if self._has_begun:
            shown = load().say("short_path", path=path, folder=self._folder)
            return f"the next recording is {shown}"
        return renamed(wanted, path, self._folder)

    def _begin_in_time(self) -> None:
        with self._acting:
            if not self._is_exiting:
                self._begin_or_print()

    def _end_in_time(self) -> None:
        with self._acting:
            if not self._is_exiting:
                self._end()

    def _end(self) -> None:
        self._cancel()
        exiting()

    def _cancel(self) -> None:
        alarm, self._alarm = self._alarm, None
        if alarm is not None:
            alarm.cancel()

    def _before_fork(self) -> None:
        """Waits until no alarm begins or ends a recording: a child with half of that would never end its own."""
        alarm = self._alarm
        if alarm is not None:
            alarm.pause()
        if self._acting.acquire(timeout=_LONGEST_WAIT):
            self._forking.add(_thread.get_ident())
        # An alarm that has just begun a recording has set the one that ends it.
        if self._alarm is not None and self._alarm is not alarm:
            self._alarm.pause()

    def _after_fork_in_parent(self) -> None:
        if _thread.get_ident() in self._forking:
            self._forking.discard(_thread.get_ident())
            self._acting.release()
        self._after_fork()

    def _after_fork(self) -> None:
        if self._alarm is not None:
            try:
                self._alarm.resume()
            except Error as error:
                say(f"{error}: no recording begins or ends in time in process {os.getpid()}")

    def _after_fork_in_child(self) -> None:
        # The child has no thread that could release the lock.
        self._acting = _thread.allocate_lock()
        self._forking.clear()
        if sys.implementation.name != "pypy":
            self._after_fork()

    def _at_exit(self) -> None:
        # From here on, alarms do nothing. One that is ending a recording prints its line first. A recording that one is
        # just beginning ends here: the session's own end at the exit may have been called before.
        self._is_exiting = True
        self._cancel()
        self._acting.acquire(timeout=_LONGEST_END)
        exiting()
        if not (self._has_begun or self._is_quiet) and os.getpid() == self._pid:
            say(self._why_none())

    def _why_none(self) -> str:
        """Says why there is no recording."""
        if self._signal is not None and _signal.getsignal(self._signal) != self._toggle:
            return (
                f"the program handles the signal {_name(self._signal)} itself, so no recording began: "
                "take another one, such as --signal RTMIN"
            )
        return load().say("without_profile", path=self._first, since=self._started, folder=self._folder)


def _name(signal: int) -> str:
    """Returns the name of a signal, such as SIGUSR1."""
    names = (name for name, number in vars(_signal).items() if number == signal and name.startswith("SIG"))
    return next((name for name in names if "_" not in name), str(signal))


def _call_in_forked_children(function: Callable[[], None]) -> None:
    """Makes ``os.fork`` and ``os.forkpty`` call ``function`` in the child before they return.

    On PyPy a child that starts a thread in a function of ``os.register_at_fork`` is ended by SIGSEGV: its threads are
    put in order only after these functions. (Seen with 7.3.11, 7.3.19 and 8.0.1.)
    """

    def replacement(fork: Callable[[], Any], is_child: Callable[[Any], bool]) -> Callable[[], Any]:
        def fork_and_call() -> Any:
            result = fork()
            if is_child(result):
                function()
            return result

        fork_and_call.__doc__ = fork.__doc__
        # Programs may pickle the function: a pickle has its names.
        fork_and_call.__module__, fork_and_call.__name__ = fork.__module__, fork.__name__
        fork_and_call.__qualname__ = fork.__name__
        return fork_and_call

    for name, is_child in (("fork", lambda pid: pid == 0), ("forkpty", lambda both: both[0] == 0)):
        fork = getattr(os, name)
        replaced = replacement(fork, is_child)
        setattr(sys.modules[fork.__module__], name, replaced)
        setattr(os, name, replaced)


class _Alarm:
    """A thread that calls a function at a time, unless it is cancelled before."""

    def __init__(self, at: float, action: Callable[[], None]):
        self._at = at
        self._action = action
        self._native_id = 0
        self.resume()

    def resume(self) -> None:
        """Starts the thread. Raises Error if the system allows no more threads."""
        self._native_id = 0
        self._lock = _thread.allocate_lock()
        self._lock.acquire()
        try:
            _thread.start_new_thread(self._wait, (self._lock,))
        except RuntimeError as error:
            raise Error(f"no thread can wait for the time ({error})") from None

    def cancel(self) -> None:
        """Ends the thread, which does nothing any more, unless it has called the function already."""
        try:
            self._lock.release()
        except RuntimeError:
            # The thread has taken the lock, or was cancelled before.
            pass

    def pause(self) -> None:
        """Ends the thread and waits a little until the system has no such thread."""
        self.cancel()
        end = time.monotonic() + _LONGEST_WAIT
        # A thread that has not begun to run yet has no number.
        while time.monotonic() < end:
            if self._native_id and not os.path.exists(f"/proc/self/task/{self._native_id}"):
                break
            time.sleep(0.0002)

    def _wait(self, lock: Any) -> None:
        self._native_id = _thread.get_native_id()
        while True:
            left = self._at - time.monotonic()
            if left <= 0:
                break
            if lock.acquire(timeout=min(left, _thread.TIMEOUT_MAX)):
                return
        # Only one of two takes the lock: this thread here, or the one that cancels by releasing it.
        self._action()
