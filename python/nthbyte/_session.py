"""Sessions of this process: the programming interface, and what it shares with ``nthbyte run``."""

from __future__ import annotations

import _operator
import _thread
import atexit
import os
import stat
import sys

from nthbyte._agent import Error, Result, interpreter, load
from nthbyte._children import follow
from nthbyte._size import DEFAULT_PERIOD, parse_period

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Callable, Union

    from nthbyte._config import Config
    from nthbyte._size import Size

    Path = Union[str, os.PathLike[str]]

# The first bytes of every profile: see docs/format.md.
MAGIC = b"\x89nthb\r\n\x1a"

# What is done when the process exits; None until the first session.
_at_exit: Callable[[], None] | None = None

# Held while a session is started or stopped. That runs Python: perhaps a signal handler that asks for either.
_turn = _thread.RLock()

# The session that runs, as its children are to be told of it: with the path of the family's first process.
_running: Config | None = None


def start(
    output: Path,
    *,
    every: Size = DEFAULT_PERIOD,
    fixed: bool = False,
    seed: int | None = None,
    cpu: int | None = None,
    native: bool = False,
    huge_pages: str = "thp",
) -> None:
    """Starts to record the allocations of this process, all threads, into the file ``output``.

    every: mean distance between samples, in bytes or as a text such as ``"512KiB"``; from 64 B
        to 1 TiB, or 1 to record every allocation.
    fixed: a sample at exactly every n-th byte instead of at random distances. PyPy only.
    seed: makes the distances the same in each run.
    cpu: also take this many time samples a second. PyPy only.
    native: also record memory and frames of native code.
    huge_pages: ``"thp"``, ``"hugetlb"`` or ``"off"``.

    The session ends with :func:`stop`, or when the process exits. Any thread may start it and any
    other may stop it. Processes that are forked off write a profile of their own, with their number
    in its name: ``out.1234.nthb``.

    Raises ValueError for an option out of range, and Error if nthbyte is already running, if the
    file cannot be written, if this interpreter is not supported, or if a signal handler asks while a
    session is being started or stopped.
    """
    begin(
        configure(output, every=every, fixed=fixed, seed=seed, cpu=cpu, native=native, huge_pages=huge_pages)
    )


def stop() -> Result:
    """Stops recording, completes the profile and returns what was recorded.

    Raises Error if nthbyte is not running, or if a signal handler asks while it is being started or stopped.
    """
    _refuse_to_interrupt()
    return finish()


def finish() -> Result:
    """Does the same for exits: whatever this thread was doing, it does not come back to it."""
    global _running
    with _turn:
        _running = None
        return load().stop()


def _refuse_to_interrupt() -> None:
    """Raises Error if this thread is starting or stopping a session: it was interrupted by a signal."""
    if _turn._is_owned():  # type: ignore[attr-defined]
        raise Error("a session is being started or stopped; try again later")


def _after_fork_in_child() -> None:
    """Another thread's turn has no end in the child, where that thread is not."""
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
        native: bool = False,
        huge_pages: str = "thp",
    ):
        self._config = configure(
            output, every=every, fixed=fixed, seed=seed, cpu=cpu, native=native, huge_pages=huge_pages
        )
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


def configure(
    output: Path,
    *,
    every: Size = DEFAULT_PERIOD,
    fixed: bool = False,
    seed: int | None = None,
    cpu: int | None = None,
    native: bool = False,
    huge_pages: str = "thp",
    command: list[str] | None = None,
) -> Config:
    """Checks options and returns a session's description; ``command`` is ``sys.argv`` unless given.

    Raises ValueError for options that are out of range or that this interpreter does not have.
    """
    period = parse_period(every)
    pypy = sys.implementation.name == "pypy"
    if fixed and period == 1:
        raise ValueError("--fixed and --every 1 exclude each other: every allocation is recorded already")
    if fixed and not pypy:
        raise ValueError("--fixed works on PyPy only; --seed makes a run on CPython repeatable")
    if cpu is not None and not pypy:
        raise ValueError("time samples (--cpu) work on PyPy only")
    if native and not pypy:
        raise ValueError("native memory and frames (--native) cannot be recorded on CPython")
    if seed is not None and not 0 <= seed < 1 << 64:
        raise ValueError(f"a seed is a number from 0 to 2**64-1, not {seed}")
    if cpu is not None and not 1 <= cpu <= 10_000:
        raise ValueError(f"time samples: from 1 to 10000 a second, not {cpu}")
    if huge_pages not in ("thp", "hugetlb", "off"):
        raise ValueError(f"huge pages: 'thp', 'hugetlb' or 'off', not {huge_pages!r}")
    path = os.path.abspath(os.fspath(output))
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the profile's name is not UTF-8: {path!a}") from None
    return {
        "output": path,
        "period": period,
        "distances": "every" if period == 1 else "fixed" if fixed else "exponential",
        "seed": seed,
        "cpu_hz": cpu,
        "native": native,
        "huge_pages": huge_pages,
        # Arguments need not be text, JSON must be.
        "command": [_text(argument) for argument in (sys.argv if command is None else command)],
        "executable": _text(sys.executable or ""),
        "interpreter": interpreter(),
        "parent_pid": None,
    }


def begin(config: Config, *, family: str | None = None, at_exit: Callable[[], None] | None = None) -> None:
    """Starts a session, and sees to it that it ends with the process and that children join it.

    family: for a child, the path of the profile of the first process.
    at_exit: called when the process exits, in place of a plain stop.
    Raises Error if the session cannot be had.
    """
    global _running, _at_exit
    _refuse_to_interrupt()
    with _turn:
        _refuse_to_overwrite(config["output"])
        load().start(config)
        _running = {**config, "output": family or config["output"]}
        if _at_exit is None:
            # What is registered first runs last: after all that the program registers.
            atexit.register(exiting)
            _call_on_os_exit(exiting)
            follow(lambda: _running)
        _at_exit = at_exit or end_quietly


def end_quietly() -> None:
    """Stops the session if one is running; for exits, where nobody can be told of an error."""
    try:
        finish()
    except Error:
        # None is running: stopped by the program.
        pass


def exiting() -> None:
    """Does what is to be done when the process exits. More often than once is as good as once."""
    if _at_exit is not None:
        _at_exit()


def _call_on_os_exit(function: Callable[[], None]) -> None:
    """Makes ``os._exit`` call the function too: children of multiprocessing end that way."""
    exit_now = os._exit

    def _exit(status: int) -> None:
        """Exit to the system with specified status, without normal exit processing."""
        status = _operator.index(status)
        function()
        exit_now(status)

    # Programs send it to other processes, by its name in the module that it comes from.
    _exit.__module__, _exit.__qualname__ = exit_now.__module__, exit_now.__name__
    sys.modules[exit_now.__module__]._exit = os._exit = _exit  # type: ignore[attr-defined, assignment]


def _refuse_to_overwrite(path: str) -> None:
    """Raises Error if there is a file at ``path`` that is not a profile."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return
        with open(path, "rb") as file:
            head = file.read(len(MAGIC))
    except OSError:
        # Missing, or not readable: then the agent says what is wrong when it cannot write.
        return
    if head and head != MAGIC:
        raise Error(f"{path} exists and is not a profile: choose another name with -o, or remove it")


def _text(argument: str) -> str:
    return argument.encode(errors="replace").decode()
