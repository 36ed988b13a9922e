"""Sessions of this process: the programming interface, and functions that ``nthbyte run`` uses too."""

from __future__ import annotations

import _operator
import _thread
import atexit
import os
import stat
import sys

from nthbyte._agent import Error, Result, interpreter, load
from nthbyte._children import follow
from nthbyte._options import check
from nthbyte._size import DEFAULT_PERIOD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Callable, Union

    from nthbyte._config import Config
    from nthbyte._size import Size

    Path = Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]

# The first bytes of every profile: see docs/format.md.
MAGIC = b"\x89nthb\r\n\x1a"

# Called when the process exits; None until the first session.
_at_exit: Callable[[], None] | None = None

# Held during the start and the stop of a session. Both run Python code, so a signal handler may call either then.
_turn = _thread.RLock()

# The running session's configuration for child processes: `output` is the path of the first process's profile.
_running: Config | None = None


def start(
    output: Path,
    *,
    every: Size = DEFAULT_PERIOD,
    fixed: bool = False,
    seed: int | None = None,
    cpu: int | None = None,
    native: bool = True,
    huge_pages: str = "thp",
) -> None:
    """Starts recording the allocations of all threads of this process into the file ``output``.

    every: mean distance between samples, in bytes or as a text such as ``"512KiB"``; from 64 B
        to 1 TiB, or 1 to record every allocation.
    fixed: sample at exactly every n-th byte instead of at random distances. PyPy only.
    seed: use the same random distances in each run.
    cpu: also take this many time samples per second. PyPy only.
    native: also record native memory, if this process has loaded the library for it, as with
        ``nthbyte run``. CPython only.
    huge_pages: memory pages of the object heap: ``"thp"``, ``"hugetlb"`` or ``"off"``. CPython only.

    The session ends with :func:`stop`, or when the process exits. One thread may start it and another
    may stop it. Each process that this one forks writes a profile of its own, with the process's number
    in its name: ``out.1234.nthb``.

    Raises ValueError for an option that is out of range or that this interpreter does not have. Raises
    Error if nthbyte is already running, if the file cannot be written, if this interpreter is not
    supported, or if a signal handler calls it while a session is being started or stopped.
    """
    begin(configure(output, _options(every, fixed, seed, cpu, native, huge_pages)))


def stop() -> Result:
    """Stops recording, completes the profile and returns what was recorded.

    Raises Error if nthbyte is not running, or if a signal handler calls it while a session is being started or stopped.
    """
    _refuse_to_interrupt()
    return finish()


def finish() -> Result:
    """Does the same as ``stop``, for the exit of the process.

    It also works if this thread was starting or stopping a session, because that work never continues.
    """
    global _running
    with _turn:
        _running = None
        return load().stop()


def _refuse_to_interrupt() -> None:
    """Raises Error in a signal handler that has interrupted the start or stop of a session."""
    if _turn._is_owned():  # type: ignore[attr-defined]
        raise Error("a session is being started or stopped; try again later")


def _after_fork_in_child() -> None:
    """Replaces the lock if another thread held it: the child has no such thread to release it."""
    global _turn
    if not _turn._is_owned():  # type: ignore[attr-defined]
        _turn = _thread.RLock()


os.register_at_fork(after_in_child=_after_fork_in_child)


class Profiler:
    """Records the allocations made while its ``with`` block runs, in all threads.

    It takes the arguments of :func:`start`. After the block, ``result`` says what was recorded.
    """

    def __init__(
        self,
        output: Path,
        *,
        every: Size = DEFAULT_PERIOD,
        fixed: bool = False,
        seed: int | None = None,
        cpu: int | None = None,
        native: bool = True,
        huge_pages: str = "thp",
    ):
        self._config = configure(output, _options(every, fixed, seed, cpu, native, huge_pages))
        self.result: Result | None = None

    def __enter__(self) -> Profiler:
        begin(self._config)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.result = stop()


def _options(
    every: Size, fixed: bool, seed: int | None, cpu: int | None, native: bool, huge_pages: str
) -> dict[str, Any]:
    """Returns the arguments of ``start`` and ``Profiler`` by name."""
    return {
        "every": every,
        "fixed": fixed,
        "seed": seed,
        "cpu": cpu,
        "native": native,
        "huge_pages": huge_pages,
    }


def configure(output: Path, options: dict[str, Any], command: list[str] | None = None) -> Config:
    """Checks options and returns a session's description; ``command`` is ``sys.argv`` unless given.

    Raises ValueError for options that are wrong or that this interpreter does not have.
    """
    checked = check(options)
    period = checked["every"]
    name = os.fspath(output)
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    path = os.path.abspath(name)
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the profile's name is not UTF-8: {path!a}") from None
    return {
        "output": path,
        "period": period,
        "distances": "every" if period == 1 else "fixed" if checked["fixed"] else "exponential",
        "seed": checked["seed"],
        "cpu_hz": checked["cpu"],
        "native": checked["native"],
        "huge_pages": checked["huge_pages"],
        # Arguments may contain bytes that are not Unicode; JSON must not.
        "command": [_text(argument) for argument in (sys.argv if command is None else command)],
        "executable": _text(sys.executable or ""),
        "interpreter": interpreter(),
        "parent_pid": None,
    }


def begin(config: Config, *, family: str | None = None, at_exit: Callable[[], None] | None = None) -> None:
    """Starts a session. It ends with the process at the latest. Child processes join it.

    family: for a child, the path of the profile of the first process.
    at_exit: called when the process exits, in place of a plain stop.
    Raises Error if the session cannot start; then there is no new file.
    """
    global _running, _at_exit
    _refuse_to_interrupt()
    with _turn:
        _refuse_to_overwrite(config["output"])
        _start(config)
        _running = {**config, "output": family or config["output"]}
        if _at_exit is None:
            # atexit runs its functions in reverse order: this one runs after all functions of the program.
            atexit.register(exiting)
            _call_on_os_exit(exiting)
            follow(lambda: _running)
        _at_exit = at_exit or end_quietly


def end_quietly() -> None:
    """Stops the session if one is running, without an error if none is."""
    try:
        finish()
    except Error:
        # The program has stopped it.
        pass


def exiting() -> None:
    """Ends the session when the process exits. May be called more than once."""
    if _at_exit is not None:
        _at_exit()


def _call_on_os_exit(function: Callable[[], None]) -> None:
    """Makes ``os._exit`` call ``function`` first: child processes of multiprocessing exit with ``os._exit``."""
    exit_now = os._exit

    def _exit(status: int) -> None:
        """Exit to the system with specified status, without normal exit processing."""
        status = _operator.index(status)
        function()
        exit_now(status)

    # Programs pickle this function; a pickle contains the names of the module and of the function.
    _exit.__module__, _exit.__qualname__ = exit_now.__module__, exit_now.__name__
    sys.modules[exit_now.__module__]._exit = os._exit = _exit  # type: ignore[attr-defined, assignment]


def _start(config: Config) -> None:
    """Starts the session. If that fails, removes the new file, if any."""
    path = config["output"]
    was_there = os.path.lexists(path)
    try:
        load().start(config)
    except Error:
        if not was_there:
            try:
                os.unlink(path)
            except OSError:
                # There is no new file.
                pass
        raise


def _refuse_to_overwrite(path: str) -> None:
    """Raises Error if there is a file at ``path`` that is not a profile."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return
        with open(path, "rb") as file:
            head = file.read(len(MAGIC))
    except OSError:
        # The file is missing or not readable. If it is not writable either, the agent reports that.
        return
    if head and head != MAGIC:
        raise Error(f"{path} exists and is not a profile: choose another name with -o, or remove it")


def _text(argument: str) -> str:
    return argument.encode(errors="replace").decode()
