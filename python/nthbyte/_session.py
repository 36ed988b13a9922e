"""Sessions of this process: the programming interface, and functions that ``nthbyte run`` uses too."""

from __future__ import annotations

import _thread
import atexit
import os
import sys
import time

from nthbyte import _family
from nthbyte._agent import Error, Result, interpreter, load, to_json
from nthbyte._children import child_path, follow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from types import TracebackType
    from typing import Any, Callable, Union

    from nthbyte._config import Config
    from nthbyte._part import Part
    from nthbyte._size import Size

    Path = Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]

# Called when the process exits; None until the first session.
_at_exit: Callable[[], None] | None = None

# Why the last session does not record native memory, although it should.
native_problem: str | None = None

# Held during the start and the stop of a session. Both run Python code, so a signal handler may call either then.
_turn = _thread.RLock()

# The longest wait for it before a fork, in seconds: a start or a stop may wait for a network file system.
_LONGEST_WAIT = 0.5

# The threads that hold it because they fork.
_forking: set[int] = set()

# The part of a long command line that a profile keeps, and the part of the first argument that is left out, in
# characters. Linux gives an argument or a variable of a child process 128 KiB at most, and they have it, too.
_LONGEST_COMMAND = 32 << 10
_BEGINNING = 100

# The parts of the running recording that `start` has begun, and all parts that have not ended.
_started: list[Part] = []
_open: list[Part] = []

# Whether child processes join the session, and whether a fork is told that they do not.
_follows = True
_fork_is_told = False

# What other programs that this process starts get of it, if they join the session.
_exported: str | None = None

# The running session's configuration for child processes: `output` is the path of the first process's profile.
_running: Config | None = None

# The process that has begun the last session, and the path of its profile.
_began = (0, "")


def start(
    output: Path | None = None,
    *,
    force: bool = False,
    every: Size | None = None,
    fixed: bool = False,
    seed: int | None = None,
    cpu: int | bool | None = None,
    native: bool | None = None,
    native_frames: bool = False,
    huge_pages: str = "thp",
    holders: bool | None = None,
    names: bool = True,
    snapshot: float | str | None = None,
    keep: str | None = None,
    tags: dict[str, str] | str | None = None,
) -> None:
    """Starts recording the allocations of all threads of this process into the file ``output``.

    If the process is recorded already, a part of that recording begins, with the options of the recording. Then
    ``stop`` returns the figures of the part, and writes the part into ``output``; without ``output`` it has no file.

    force: replace the profile ``output`` if it exists. Otherwise a new name is taken, with a RuntimeWarning that says
        it; ``stop`` returns it too.
    every: mean distance between samples, in bytes or as a text such as ``"512KiB"``; from 64 B
        to 1 TiB, or 1 to record every allocation. ``"auto"`` begins with 16 KiB and follows the program, so that
        samples take 0.5 % of its CPU time. That is the default; with ``seed`` or ``fixed`` it is 512 KiB.
    fixed: sample at exactly every n-th byte instead of at random distances. PyPy only.
    seed: use the same random distances in each run.
    cpu: also take this many time samples per second of CPU time; True for 1000.
    native: whether to record native memory: calls of malloc, and mappings, from the start on. By default it is recorded
        where possible; otherwise a note in the profile says why not. True makes that an error.
    native_frames: the same, with the frames of C, C++ and Rust code in the stacks of native memory and of time samples.
        CPython only.
    huge_pages: memory pages of the object heap: ``"thp"``, ``"hugetlb"`` or ``"off"``. CPython only.
    holders: whether to look at who holds what is alive, in a copy of the process, when the recording ends, at new peaks
        of memory, and at :func:`snapshot`. By default it is done where 1 % of the program's CPU time pays for it;
        at the end also where it takes a 500th of the time, up to 20 ms.
    names: whether what ``holders`` records has the keys of dictionaries, which are the program's data.
    snapshot: look at who holds what every so many seconds, too; or whenever a signal comes, as ``"USR2"``.
    keep: keep what was recorded in the last ``"24h"``, or in files of ``"500MB"`` together, or both:
        ``"24h,500MB"``. Older parts are dropped, but for sums and live samples.
    tags: labels of the whole process, which all its samples have, as a dict or as ``"service:web,env:prod"``; by
        default the environment variable NTHBYTE_TAGS.

    The session ends with :func:`stop`, or when the process exits. One thread may start it and another
    may stop it. Each process that this one forks writes a profile of its own, with the process's number
    in its name: ``out.1234.nthb``.

    Raises ValueError for an option that is out of range or that this interpreter does not have, and if ``output`` is
    missing where no recording runs. Raises Error if the file cannot be written, if this interpreter is not
    supported, or if a signal handler calls it while a session is being started or stopped.
    """
    arguments = _arguments(
        force,
        every,
        fixed,
        seed,
        cpu,
        native,
        native_frames,
        huge_pages,
        holders,
        names,
        snapshot,
        keep,
        tags,
    )
    part = _begin_and_warn(output, _configure(output, arguments), force)
    if part is not None:
        _started.append(part)


def _begin_and_warn(output: Path | None, config: Config, force: bool) -> Part | None:
    """Starts a session for the caller of the calling function, and warns it if the profile has another name.

    Returns the part that begins instead if a session runs.
    """
    part = None
    try:
        if is_running():
            part = _begin_part(None if output is None else config["output"], force)
            path = part.output
        elif output is None:
            raise ValueError("name the profile's file: nothing is recorded that this could be a part of")
        else:
            path = begin(config, force=force)
    except Error as error:
        from nthbyte._options import with_argument_names

        raise Error(with_argument_names(str(error))) from None
    if path is not None and path != config["output"]:
        import warnings

        try:
            warnings.warn(f"{config['output']} exists: the profile is {path}", RuntimeWarning, stacklevel=3)
        except RuntimeWarning:
            # Warnings are errors here, and after an error nothing is recorded for the caller.
            if part is None:
                discard()
            else:
                _open.remove(part)
            raise
    return part


def _begin_part(output: str | None, force: bool) -> Part:
    """Begins a part of the recording that runs."""
    _refuse_to_interrupt()
    # Imported here, because a program that is recorded from outside has none.
    from nthbyte._part import Part

    part = Part(output, force)
    if output is not None and part.output is not None and os.fsencode(part.output) == os.fsencode(output):
        # As the caller spells it: see `begin`.
        part.output = output
    _open.append(part)
    return part


def _end_part(part: Part) -> Result:
    if part in _open:
        _open.remove(part)
    return part.end()


def stop() -> Result:
    """Stops recording, completes the profile and returns what was recorded.

    If ``start`` has begun a part of a recording, only the part ends that was begun last.

    Raises Error if nthbyte is not running, if a part's profile cannot be written, or if a signal handler calls it while
    a session is being started or stopped.
    """
    _refuse_to_interrupt()
    return _end_part(_started.pop()) if _started else finish()


def snapshot(*, force: bool = False) -> str | None:
    """Looks at who holds what is alive, in a copy of the process, while the program goes on.

    force: do it whatever it costs, and also with ``holders=False``. Otherwise it is done where 1 % of the program's
        CPU time pays for it.

    Returns None, or why there is no snapshot; the profile says that, too. Raises Error if nthbyte is not running, or
    if this interpreter has no snapshots.
    """
    _refuse_to_interrupt()
    with _turn:
        if _running is None:
            raise Error("nthbyte is not running: there is no profile for a snapshot")
        return load().snapshot(force)


def finish() -> Result:
    """Does the same as ``stop``, for the exit of the process.

    It also works if this thread was starting or stopping a session, because that work never continues.
    """
    global _running, _exported
    with _turn:
        _running = None
        if _exported is not None:
            _exported = None
            _family.withdraw()
        for part in _open:
            part.close()
        _open.clear()
        if "nthbyte._part" in sys.modules:
            sys.modules["nthbyte._part"].let_go_of_checkpoint()
        return load().stop()


def _refuse_to_interrupt() -> None:
    """Raises Error in a signal handler that has interrupted the start or stop of a session."""
    if _turn._is_owned() and _thread.get_ident() not in _forking:  # type: ignore[attr-defined]
        raise Error("a session is being started or stopped; try again later")


def _before_fork() -> None:
    """Waits until no thread is starting or stopping a session, so that no child has half of one."""
    if _turn.acquire(timeout=_LONGEST_WAIT):
        _forking.add(_thread.get_ident())


def _after_fork_in_parent() -> None:
    if _thread.get_ident() in _forking:
        _forking.discard(_thread.get_ident())
        _turn.release()


def _after_fork_in_child() -> None:
    """Replaces the lock if another thread held it: the child has no such thread to release it."""
    global _turn
    _after_fork_in_parent()
    _forking.clear()
    if not _turn._is_owned():  # type: ignore[attr-defined]
        _turn = _thread.RLock()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)


class Profiler:
    """Records the allocations made while its ``with`` block runs, in all threads.

    It takes the arguments of :func:`start`. After the block, ``result`` says what was recorded. In a process that is
    recorded already, it is a part of that recording, as with :func:`start`.
    """

    def __init__(
        self,
        output: Path | None = None,
        *,
        force: bool = False,
        every: Size | None = None,
        fixed: bool = False,
        seed: int | None = None,
        cpu: int | bool | None = None,
        native: bool | None = None,
        native_frames: bool = False,
        huge_pages: str = "thp",
        holders: bool | None = None,
        names: bool = True,
        snapshot: float | str | None = None,
        keep: str | None = None,
        tags: dict[str, str] | str | None = None,
    ):
        arguments = _arguments(
            force,
            every,
            fixed,
            seed,
            cpu,
            native,
            native_frames,
            huge_pages,
            holders,
            names,
            snapshot,
            keep,
            tags,
        )
        self._output = output
        self._config = _configure(output, arguments)
        self._force = force
        self._part: Part | None = None
        self.result: Result | None = None

    def __enter__(self) -> Profiler:
        self._part = _begin_and_warn(self._output, self._config, self._force)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            part, self._part = self._part, None
            if part is not None:
                self.result = _end_part(part)
            else:
                _refuse_to_interrupt()
                self.result = finish()
        except Error:
            # The block has stopped the session. An exception of its own says more.
            if kind is None:
                raise


def _arguments(
    force: bool,
    every: Size | None,
    fixed: bool,
    seed: int | None,
    cpu: int | bool | None,
    native: bool | None,
    native_frames: bool,
    huge_pages: str,
    holders: bool | None,
    names: bool,
    snapshot: float | str | None,
    keep: str | None,
    tags: dict[str, str] | str | None,
) -> dict[str, Any]:
    """Returns the arguments of ``start`` and ``Profiler`` by name."""
    return {
        "force": force,
        "every": every,
        "fixed": fixed,
        "seed": seed,
        "cpu": cpu,
        "native": native,
        "native_frames": native_frames,
        "huge_pages": huge_pages,
        "holders": holders,
        "names": names,
        "snapshot": snapshot,
        "keep": keep,
        "tags": tags,
    }


def _configure(output: Path | None, arguments: dict[str, Any]) -> Config:
    """Does the same as ``configure`` for a Python call: errors have the arguments' names, not the options'.

    Without ``output`` the session cannot begin, but its options are checked.
    """
    try:
        return configure("none" if output is None else output, arguments)
    except ValueError as error:
        from nthbyte._options import with_argument_names

        raise ValueError(with_argument_names(str(error))) from None


def configure(output: Path, options: dict[str, Any], command: list[str] | None = None) -> Config:
    """Checks options and returns a session's description; ``command`` is ``sys.argv`` unless given.

    Raises ValueError for options that are wrong or that this interpreter does not have, and Error if there is no
    working folder.
    """
    # Imported here, because `nthbyte run` drops these modules when the session has begun.
    from nthbyte._options import check
    from nthbyte._size import AUTO, FIRST_AUTO_PERIOD

    checked = check(options)
    auto = checked["every"] == AUTO
    period = FIRST_AUTO_PERIOD if auto else checked["every"]
    name = os.fspath(output)
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    if name.endswith(os.sep):
        raise ValueError(f"{name} is a folder; choose the name of a file with -o")
    try:
        path = os.path.abspath(name)
    except OSError as error:
        raise Error(
            f"there is no working folder ({error.strerror}): name the profile with its whole path"
        ) from None
    try:
        # The agent gets the path as UTF-8, whatever the encoding of the interpreter's file names is.
        os.fsencode(path).decode()
    except UnicodeError:
        raise ValueError(f"the profile's path is not UTF-8: {path!a}; choose one in UTF-8 with -o") from None
    return {
        "output": path,
        "period": period,
        "auto": auto,
        "distances": "every" if period == 1 else "fixed" if checked["fixed"] else "exponential",
        "seed": checked["seed"],
        "cpu_hz": checked["cpu"],
        "native": True if checked["native_frames"] else checked["native"],
        "native_frames": checked["native_frames"],
        "native_problem": None,
        "whole_mappings": False,
        "huge_pages": checked["huge_pages"],
        "holders": {None: "auto", True: "always", False: "never"}[checked["holders"]],
        "no_names": not checked["names"],
        "snapshot_every": every if isinstance(every := checked["snapshot"], float) else None,
        "snapshot_signal": signal if isinstance(signal := checked["snapshot"], int) else None,
        "keep": checked["keep"],
        "command": kept_command(sys.argv if command is None else command),
        "executable": as_text(sys.executable or ""),
        "interpreter": interpreter(),
        "parent_pid": None,
        "memory_before": None,
        "tags": _kept_tags(checked["tags"]),
        "line_at_signal": None,
        "claimed": False,
        "run": time.time_ns(),
    }


def _kept_tags(tags: dict[str, str] | None) -> dict[str, str]:
    """Returns these tags as a profile keeps them; without any, the environment's.

    Raises ValueError if these are wrong.
    """
    from nthbyte._options import parse_tags

    try:
        tags = parse_tags(os.environ.get("NTHBYTE_TAGS", "")) if tags is None else tags
    except ValueError as error:
        raise ValueError(f"NTHBYTE_TAGS: {error}") from None
    return {as_text(key): as_text(value) for key, value in tags.items()}


def begin(
    config: Config,
    *,
    family: str | None = None,
    force: bool = False,
    kept: Collection[str] = (),
    at_exit: Callable[[], None] | None = None,
    at_signal: Callable[[str], str | None] | None = None,
    exports: bool = False,
) -> str:
    """Starts a session and returns its profile's path. It ends with the process at the latest. Child processes join it.

    family: for a child, the path of the profile of the first process.
    kept: the real paths of profiles that are not replaced, even with ``force``.
    at_exit: called when the process exits, in place of a plain stop.
    exports: whether other programs that this process starts join the session, too: see ``_family.py``.
    at_signal: makes the line that is printed if a signal ends the process, from the profile's path.
    Raises Error if the session cannot start; then there is no new file.
    """
    global _running, _began, _at_exit, _exported
    _refuse_to_interrupt()
    with _turn:
        agent = load()
        path = agent.claim(config["output"], force, kept)
        if os.fsencode(path) == os.fsencode(config["output"]):
            # The same file, as the caller spells it: where the locale is not UTF-8, it may be spelt in two ways.
            path = config["output"]
        config = {**config, "output": path}
        has_begun = False
        try:
            if config["snapshot_signal"] is not None:
                _take_snapshots_at(config["snapshot_signal"])
            # Children, which get `_running`, print no line.
            line = at_signal(path) if at_signal is not None else None
            agent.start({**_with_native(config), "line_at_signal": line, "claimed": True})
            has_begun = True
        finally:
            agent.settle(has_begun)
        # Children started from here have nothing before their session.
        _running = {**config, "output": family or config["output"], "memory_before": None}
        _began = (os.getpid(), path)
        if exports:
            _exported = to_json({**_running, "parent_pid": os.getpid()})
            _family.follow(lambda: _exported, agent.flush)
        if _at_exit is None:
            # atexit runs its functions in reverse order: this one runs after all functions of the program.
            atexit.register(exiting)
            _call_on_os_exit(_leaving)
            follow(lambda: _running if _follows else None)
        _at_exit = at_exit or end_quietly
        return path


def _take_snapshots_at(number: int) -> None:
    """Takes a snapshot whenever a signal comes. Raises Error if that is not possible."""
    import _signal  # type: ignore[import-not-found]

    try:
        _signal.signal(number, _on_snapshot_signal)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Error(f"the signal {number} cannot be handled ({reason}); take USR2, for example") from None


def _on_snapshot_signal(signal: int, frame: Any) -> None:
    if _running is not None:
        load().snapshot_at_signal()


def export() -> None:
    """Has programs join that are started in any way, also by native code.

    Only before the program runs: other threads may read the environment.
    """
    if _exported is not None:
        _family.export(_exported)


def leave_children_alone(alone: bool = True) -> None:
    """Records this process only: neither those that it forks, nor what it starts by ``multiprocessing``.

    alone: False has the next recording follow them again.
    """
    global _follows, _fork_is_told
    _follows = not alone
    if alone and not _fork_is_told:
        _fork_is_told = True
        os.register_at_fork(after_in_child=lambda: None if _follows else discard())


def _with_native(config: Config) -> Config:
    """Returns the configuration for the agent, which knows whether native memory can be recorded here.

    Raises Error if it must be and cannot.
    """
    global native_problem
    wanted = config["native"]
    native_problem = None if wanted is False else load().load_native()
    if wanted and native_problem:
        raise Error(f"native memory cannot be recorded: {native_problem}")
    is_on = wanted is not False and not native_problem
    return {**config, "native": is_on, "native_problem": native_problem}


def end_quietly() -> None:
    """Stops the session if one is running, without an error if none is."""
    try:
        finish()
    except Error:
        # The program has stopped it.
        pass


def discard() -> None:
    """Stops the session and removes its profile, because the program did not begin."""
    try:
        path = finish().path
        # Not a link, nor a device.
        if os.path.isfile(path) and not os.path.islink(path):
            os.unlink(path)
    except (Error, OSError):
        # No session is running; or the file is gone already, or the folder does not allow it.
        pass


def is_running() -> bool:
    """Whether this module has started a session that has not been stopped."""
    return _running is not None


def running_profile() -> str | None:
    """The path of the profile that this process writes now; None without a session."""
    if _running is None:
        return None
    pid, path = _began
    return path if pid == os.getpid() else child_path(_running["output"], os.getpid())


def exiting() -> None:
    """Ends the session when the process exits. May be called more than once.

    An error does not reach the program. The profile is complete before the result is read; the modules for that may be
    out of reach by then, for a process that has given up its rights.
    """
    if _at_exit is not None:
        try:
            _at_exit()
        except Exception:
            pass


def _leaving() -> None:
    """Ends the session before ``os._exit``. The child of a fork that has recorded nothing leaves without a profile."""
    if load().has_profile():
        exiting()


def _call_on_os_exit(function: Callable[[], None]) -> None:
    """Makes ``os._exit`` call ``function`` first: child processes of multiprocessing exit with ``os._exit``."""
    exit_now = os._exit

    def _exit(status: int) -> None:
        """Exit to the system with specified status, without normal exit processing."""
        # This is operator.index, whose module plain Python need not load.
        status = range(status).stop
        function()
        exit_now(status)

    # Programs pickle this function; a pickle contains the names of the module and of the function.
    _exit.__module__, _exit.__qualname__ = exit_now.__module__, exit_now.__name__
    sys.modules[exit_now.__module__]._exit = os._exit = _exit  # type: ignore[attr-defined, assignment]


def kept_command(command: Sequence[str]) -> list[str]:
    """Returns a command line as a profile keeps it: a long one ends early, and says so."""
    kept: list[str] = []
    room = _LONGEST_COMMAND
    for number, argument in enumerate(command):
        text = as_text(argument)
        room -= len(to_json(text))
        if room < 0:
            return [*kept, f"{text[:_BEGINNING]}...", f"({len(command) - number - 1} more)"]
        kept.append(text)
    return kept


def as_text(argument: str) -> str:
    """Returns a text for JSON. Arguments and paths may contain bytes that are not Unicode; JSON must not."""
    return argument.encode(errors="replace").decode()
