"""Loads and calls the agent: the part of nthbyte that works inside the interpreter.

PyPy uses ``_pypy.PyPyAgent``, a subclass of :class:`Agent`.
"""

from __future__ import annotations

import os
import sys

# Not imported from typing: on PyPy, that import takes a fifth of a short run's time. For the same reason the
# modules that `nthbyte run` needs do not use re, json or contextlib.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from types import CodeType
    from typing import Any, Callable

    from nthbyte._config import Config

_FOLDER = os.path.dirname(os.path.abspath(__file__))


# Samples the calls of malloc.
NATIVE_LIBRARY = os.path.join(_FOLDER, "libnthbyte_native.so")
# The command that reads profiles. `__main__` has it too, which does not import this module for it.
COMMAND = os.path.join(_FOLDER, "bin", "nthbyte")


def why_no_native(problem: str | None) -> str | None:
    """Returns why native memory is not available: for a user whose processor it is not there for, not what failed."""
    machine = os.uname().machine
    if problem is None or machine in ("x86_64", "aarch64"):
        return problem
    return f"nthbyte records it on x86-64 and ARM64 only, not on {machine}"


class Error(Exception):
    """A request to nthbyte failed. The message is one line: what failed, and what to do."""


class Result:
    """The result of a session."""

    __slots__ = ("bytes_allocated", "is_stalled", "lost", "notes", "path", "samples", "time_samples")

    def __init__(
        self,
        path: str,
        samples: int,
        time_samples: int,
        lost: int,
        bytes_allocated: int | None,
        notes: tuple[str, ...],
        is_stalled: bool = False,
    ):
        self.path = path
        """The absolute path of the profile."""
        self.samples = samples
        """The number of samples of memory in the profile."""
        self.time_samples = time_samples
        """The number of time samples in the profile."""
        self.lost = lost
        """The number of events that were lost because the disk or the writer was too slow."""
        self.bytes_allocated = bytes_allocated
        """Bytes allocated during the session, sampled or not; None where the agent cannot count them."""
        self.notes = notes
        """Remarks of the agent, one sentence each."""
        self.is_stalled = is_stalled
        """Whether the profile's file took nothing for some seconds: whoever looks into its folder may wait for ever."""

    def __repr__(self) -> str:
        return f"<nthbyte.Result {self.path!r}, {self.samples} samples>"


class Mark:
    """What a session had recorded at a moment (``Mark`` in crates/session/src/mark.rs)."""

    __slots__ = ("allocated", "lost", "path", "samples", "time", "time_samples")

    def __init__(
        self, time: int, samples: int, time_samples: int, lost: int, allocated: int | None, path: str
    ):
        self.time = time
        """Nanoseconds since the session began."""
        self.samples = samples
        self.time_samples = time_samples
        self.lost = lost
        """Events lost since the process began, or the first of those that it was forked from."""
        self.allocated = allocated
        """Bytes that were allocated; None where they are not counted."""
        self.path = path
        """The path of the profile."""


def read_mark(answer: str | None) -> Mark | None:
    """Reads a mark from the library's text; None if no session was running."""
    if answer is None:
        return None
    head, _, path = answer.partition("\n")
    time, samples, time_samples, lost, allocated = head.split(",")
    counted = None if allocated == "-" else int(allocated)
    return Mark(int(time), int(samples), int(time_samples), int(lost), counted, from_utf8(path))


def read_result(answer: str | None, notes: tuple[str, ...] = ()) -> Result:
    """Reads the result of a session from the library's text (``Outcome::to_text``); ``notes`` come before its notes.

    It imports nothing: the program may have ended with an empty ``sys.path``, or without a free file descriptor.

    Raises Error if ``answer`` is None: no session was running.
    """
    if answer is None:
        raise Error("nthbyte is not running: nothing to stop")
    head, _, path = answer.partition("\n\n")
    counts, *more = head.split("\n")
    samples, time_samples, lost, allocated, is_stalled = counts.split(",")
    return Result(
        os.fsdecode(path.encode()),
        int(samples),
        int(time_samples),
        int(lost),
        None if allocated == "-" else int(allocated),
        (*notes, *more),
        is_stalled == "1",
    )


def with_utf8_paths(config: Config | dict[str, Any]) -> dict[str, Any]:
    """Returns a session's configuration for the agent, which knows UTF-8 only: another encoding of file names would
    give it another path.
    """
    result: dict[str, Any] = {**config}
    for name in ("output", "line_at_signal"):
        if result[name] is not None:
            result[name] = os.fsencode(result[name]).decode()
    return result


def claim_request(path: str, force: bool, kept: Collection[str]) -> str:
    """Returns a claim's description for the agent."""
    return to_json({"path": as_utf8(path), "force": force, "kept": [as_utf8(one) for one in kept]})


def said_request(what: str, details: dict[str, Any]) -> str:
    """Returns a request of :meth:`Agent.say` for the agent."""
    # Texts are paths; a list of texts has none.
    texts = {name: as_utf8(value) if isinstance(value, str) else value for name, value in details.items()}
    return to_json({what: texts}).encode(errors="replace").decode()


def as_utf8(path: str) -> str:
    """Returns a path for the agent. Profiles' paths are UTF-8; folders that links lead to need not be."""
    return os.fsencode(path).decode(errors="replace")


def process_labels(labels: dict[str, str]) -> str:
    """Returns labels for the agent: keys and values, with ``\\x1f`` between them."""
    words = [word for label in labels.items() for word in label]
    return "\x1f".join(word.replace("\x1f", " ").replace("\0", " ") for word in words)


def from_utf8(path: str) -> str:
    """Returns a path that the agent has given."""
    return os.fsdecode(path.encode())


def to_json(value: Any) -> str:
    """Returns plain data as JSON, like ``json.dumps``, whose import takes long."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        text = value.replace("\\", "\\\\").replace('"', '\\"')
        if not text.isprintable():
            text = "".join(sign if sign >= " " else f"\\u{ord(sign):04x}" for sign in text)
        return f'"{text}"'
    if isinstance(value, dict):
        return "{" + ",".join([f"{to_json(key)}:{to_json(value[key])}" for key in value]) + "}"
    return "[" + ",".join([to_json(item) for item in value]) + "]"


class Agent:
    """The loaded library. The process has one: see :func:`load`."""

    def __init__(self, path: str):
        # The public names are in importlib, which is not imported yet.
        from _frozen_importlib import ModuleSpec, module_from_spec
        from _frozen_importlib_external import ExtensionFileLoader

        # The agent uses this module while it is created, when it must not wait for a file.
        import nthbyte._operations  # noqa: F401

        name = "nthbyte._native"
        spec = ModuleSpec(name, ExtensionFileLoader(name, path), origin=path)
        self._native: Any = module_from_spec(spec)
        os.register_at_fork(after_in_child=self._native.forked)
        self.compile: Callable[[bytes, str, bool], CodeType] = self._native.compile
        """Compiles a source without zero bytes. CPython only.

        The last argument says whether the source is a file; other sources are UTF-8. The built-in ``compile`` first
        creates all types of ``ast``: 0.4 MB that many programs do not need.
        """
        self.execute: Callable[[Any, Any], object] = self._native.execute
        """Executes code with its globals, or calls a function with a tuple of arguments. CPython only.

        The frames below do not count towards the recursion limit.
        """

    def prepare(self) -> None:
        """Installs the heap for later allocations, if possible."""
        self._native.prepare()

    def load_native(self) -> str | None:
        """Makes native memory available. Returns the reason if that is not possible."""
        return why_no_native(self._native.load_native(NATIVE_LIBRARY))

    def page_tables_problem(self) -> str | None:
        """Returns why the resident set is not read from the page tables, and how else; None if it is."""
        problem: str | None = self._native.page_tables_problem()
        return problem

    def claim(self, path: str, force: bool, kept: Collection[str] = ()) -> str:
        """Makes a new file for a profile, at ``path`` or with a free name that resembles it. Returns its path.

        A file that is there stays as it is, unless it is empty. With ``force``, a profile is replaced, unless its real
        path is in ``kept``, or another session has just claimed it; no other file is, and none of another user's. A
        device or a pipe is used as it is. The caller calls ``settle`` next. Raises Error if the file cannot be made.
        """
        answer = self._native.claim(claim_request(path, force, kept))
        if not answer.startswith("+"):
            raise Error(answer[1:])
        return from_utf8(answer[1:])

    def settle(self, has_begun: bool) -> None:
        """Ends the claim: the replaced file is removed if the session has begun, and is back if it has not."""
        self._native.settle(has_begun)

    def free_name(self, path: str) -> str:
        """Returns the name that a claim without ``force`` would take now. It makes no file."""
        return from_utf8(self._native.free_name(as_utf8(path)))

    def say(self, what: str, **details: Any) -> str:
        """Returns the line at the end, or one of its like: see ``Request`` in crates/session/src/end_line.rs."""
        return from_utf8(self._native.say(said_request(what, details)))

    def label_process(self, **labels: str) -> None:
        """Labels the samples of all threads, whatever their contexts are; without a label, no longer.

        The labels of a thread are inside of these. Each set of them takes some hundred bytes for good.
        """
        self._native.label_process(as_utf8(process_labels(labels)))

    def start(self, config: Config) -> None:
        """Starts a session. Raises Error if it cannot start."""
        message = self._native.start(to_json(with_utf8_paths(config)))
        if message is not None:
            raise Error(message)

    def has_profile(self) -> bool:
        """Whether this process has a profile. The child of a fork has none before its first recording."""
        return self._native.has_profile() is not None

    def clock_start(self) -> int | None:
        """The reading of ``time.monotonic_ns`` at which the times of the running session's profile begin."""
        start = self._native.clock_start()
        return None if start is None else int(start)

    def mark(self) -> Mark | None:
        """Returns what the session has recorded so far; None if none is running, or none has begun in this process."""
        return read_mark(self._native.mark())

    def flush(self) -> bool:
        """Waits until the profile has all that was recorded, for some seconds at most. Returns whether it has."""
        return self._native.flush() is not None

    def snapshot(self, force: bool) -> str | None:
        """Takes a snapshot of who holds what. Returns why there is none; with ``force``, costs are no reason."""
        problem: str | None = self._native.snapshot(force)
        return problem

    def snapshot_at_signal(self) -> None:
        """Takes a snapshot because a signal has asked for it, if one is possible."""
        self._native.snapshot_at_signal()

    def snapshot_seconds(self) -> float:
        """The CPU time of the processes that have taken snapshots: the kernel counts it as ended children's."""
        return int(self._native.snapshot_nanos()) / 1e9

    def stop(self) -> Result:
        """Stops the session and returns what it recorded. Raises Error if none is running."""
        answer = self._native.stop()
        return read_result(answer)


def stop_tracemalloc() -> int:
    """Stops tracemalloc (-X tracemalloc) and returns its limit of frames; 0 if it does not run.

    tracemalloc must start after the agent: when it stops, it restores the allocator from before its start, and
    CPython's own allocator cannot free the agent's blocks.
    """
    if sys.implementation.name == "pypy":
        return 0
    import _tracemalloc

    if not _tracemalloc.is_tracing():
        return 0
    limit = _tracemalloc.get_traceback_limit()
    _tracemalloc.stop()
    return limit


def restart_tracemalloc(limit: int) -> None:
    """Starts tracemalloc again; ``limit`` is what ``stop_tracemalloc`` returned."""
    if limit:
        import tracemalloc

        tracemalloc.start(limit)


_agent: Agent | None = None


def load() -> Agent:
    """Returns the agent of this process. Raises Error if it cannot be loaded."""
    global _agent
    if _agent is None:
        if "t" in getattr(sys, "abiflags", "") and sys.version_info[:2] != (3, 13):
            raise Error(f"{interpreter()} without the GIL is not supported: use an ordinary build, or 3.13")
        try:
            if sys.implementation.name == "pypy":
                from nthbyte._pypy import PyPyAgent

                _agent = PyPyAgent(os.path.join(_FOLDER, "libnthbyte_pypy.so"))
            else:
                _agent = Agent(os.path.join(_FOLDER, "libnthbyte_cpython.so"))
        except SystemError:
            # The library itself knows which interpreters it supports.
            raise Error(f"{interpreter()} is not supported: nthbyte works on 3.11 to 3.15") from None
        except (ImportError, OSError) as error:
            if sys.platform != "linux":
                # The wheel for macOS.
                raise Error(
                    "programs are recorded on Linux only; this machine reads their profiles"
                ) from None
            advice = "install nthbyte again"
            if getattr(sys, "frozen", False):
                # PyInstaller takes Python code only, unless it is told.
                advice = "build the program with: pyinstaller --collect-all nthbyte"
            if has_no_room(error):
                advice = "raise the memory limit"
            raise Error(f"cannot load the agent: {error}; {advice}") from None
    return _agent


def has_no_room(error: Exception) -> bool:
    """Whether a library could not be loaded because there is no memory for it."""
    # The dynamic linker's words.
    words = ("failed to map segment", "cannot map zero-fill pages", "cannot allocate memory")
    return any(part in str(error) for part in words)


def interpreter() -> str:
    """Returns the interpreter's name and version: ``CPython 3.13.0``, ``PyPy 7.3.11 (Python 3.9.16)``."""
    python = "{}.{}.{}".format(*sys.version_info)
    if sys.version_info.releaselevel != "final":
        python += f"{sys.version_info.releaselevel[:1]}{sys.version_info.serial}"
    if sys.implementation.name == "pypy":
        version: Any = sys.pypy_version_info  # type: ignore[attr-defined]
        return "PyPy {}.{}.{} (Python {})".format(*version[:3], python)
    return f"CPython {python}"
