"""The door to libnthbyte, the part of nthbyte that lives inside the interpreter.

On PyPy, ``_pypy.PyPyAgent`` (a subclass of :class:`Agent`) does what is special there.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    import ctypes

LIBRARY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libnthbyte.so")


class Error(Exception):
    """nthbyte cannot do what was asked. The text is one line that says what is wrong and what to do."""


class Config(TypedDict):
    """One session, as the agent wants to be told of it."""

    output: str
    """Absolute path of the profile."""
    period: int
    """Mean distance between samples in bytes."""
    distances: str
    """``exponential``, ``fixed``, or ``every`` where each allocation is recorded."""
    seed: int | None
    """Seed of the distances; None takes one from the system."""
    cpu_hz: int | None
    """Time samples a second; None for none."""
    native: bool
    """Whether memory and frames of native code are recorded too."""
    huge_pages: str
    """``thp``, ``hugetlb`` or ``off``."""
    command: list[str]
    """The program and its arguments."""
    executable: str
    """Path of the interpreter."""
    interpreter: str
    """Name and version of the interpreter."""
    parent_pid: int | None
    """The profiled process that started this one, if there was one."""


class Result:
    """What a session recorded."""

    __slots__ = ("bytes_allocated", "lost", "notes", "path", "samples")

    def __init__(
        self, path: str, samples: int, lost: int, bytes_allocated: int | None, notes: tuple[str, ...]
    ):
        self.path = path
        """Where the profile is: an absolute path."""
        self.samples = samples
        """The number of samples in it."""
        self.lost = lost
        """The number of events that were dropped, because the disk or the writer was too slow."""
        self.bytes_allocated = bytes_allocated
        """Bytes allocated during the session, sampled or not; None where they cannot be counted."""
        self.notes = notes
        """Remarks of the agent, a sentence each."""

    def __repr__(self) -> str:
        return f"<nthbyte.Result {self.path!r}, {self.samples} samples>"


class Agent:
    """The loaded library. The process has one: see :func:`load`."""

    def __init__(self, library: ctypes.CDLL):
        import ctypes

        self._ctypes = ctypes
        self._start = library.nthbyte_start
        self._start.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
        self._start.restype = ctypes.c_int
        self._stop = library.nthbyte_stop
        self._stop.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        self._stop.restype = ctypes.c_int

    def start(self, config: Config) -> None:
        """Starts a session. Raises Error if it cannot be had."""
        message = self._ctypes.create_string_buffer(1024)
        if self._start(json.dumps(config).encode(), message, len(message)):
            raise Error(message.value.decode(errors="replace"))

    def stop(self) -> Result:
        """Stops the session and returns what it recorded. Raises Error if none is running."""
        answer = self._ctypes.create_string_buffer(64 * 1024)
        if self._stop(answer, len(answer)):
            raise Error("nthbyte is not running: nothing to stop")
        result = json.loads(answer.value)
        return Result(
            result["path"],
            result["samples"],
            result["lost"],
            result["bytes_allocated"],
            tuple(result["notes"]),
        )


_agent: Agent | None = None


def load() -> Agent:
    """Returns the agent of this process. Raises Error if it cannot be loaded."""
    global _agent
    if _agent is None:
        if sys.implementation.name == "pypy":
            from nthbyte._pypy import PyPyAgent

            _agent = PyPyAgent(LIBRARY)
            return _agent
        import ctypes

        try:
            # PyDLL keeps the GIL during a call, and the agent relies on that.
            library = ctypes.PyDLL(LIBRARY)
        except OSError as error:
            raise Error(f"cannot load the agent: {error}") from None
        _agent = Agent(library)
    return _agent


def interpreter() -> str:
    """Returns the interpreter's name and version: ``CPython 3.13.0``, ``PyPy 7.3.11 (Python 3.9.16)``."""
    python = "{}.{}.{}".format(*sys.version_info)
    if sys.version_info.releaselevel != "final":
        python += f"{sys.version_info.releaselevel[:1]}{sys.version_info.serial}"
    if sys.implementation.name == "pypy":
        version: Any = sys.pypy_version_info  # type: ignore[attr-defined]
        return "PyPy {}.{}.{} (Python {})".format(*version[:3], python)
    return f"CPython {python}"
