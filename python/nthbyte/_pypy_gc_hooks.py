"""Takes a sample at every k-th minor collection through ``gc.hooks``, where the agent cannot hook PyPy.

PyPy calls the hook at the next bytecode after a collection. So the stack is of the code that filled the
nursery, or of the code that ran directly after it.
"""

from __future__ import annotations

import _thread
import gc
import os
import sys
from types import FrameType
from typing import Any, Callable

# The largest number of recorded frames, from the innermost one.
_DEEPEST = 500

# A walk stops at the launcher's frames: they and their callers do not belong to the program.
_LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_run.py")

# What stands in the place of no hook. A collection of another thread may have happened whose hook PyPy has not called
# yet: it would call None, and the program would get a TypeError.
_DO_NOTHING = bool


class MinorHook:
    """Reports minor collections from ``gc.hooks``, and also calls a hook that the program has set before."""

    def __init__(self, report: Callable[[int, int, int, int, str], None], every: int):
        self._report = report
        self._every = every
        self._since_sample = 0
        self._busy = False
        self._hooks: Any = gc.hooks  # type: ignore[attr-defined]
        before = self._hooks.on_gc_minor
        self._before = None if before is _DO_NOTHING else before
        self._hooks.on_gc_minor = self._on_minor

    def remove(self) -> None:
        """Restores the previous hook, unless the program has set another one."""
        if self._hooks.on_gc_minor == self._on_minor:
            self._hooks.on_gc_minor = self._before or _DO_NOTHING

    def _on_minor(self, stats: Any) -> None:
        if not self._busy:
            self._busy = True
            try:
                self._since_sample += stats.count
                stack = ""
                if self._since_sample >= self._every:
                    self._since_sample %= self._every
                    stack = _stack(sys._getframe(1))
                duration = int(stats.duration * 1e9)
                self._report(stats.count, duration, stats.total_memory_used, _thread.get_native_id(), stack)
            finally:
                self._busy = False
        if self._before is not None:
            self._before(stats)


def _stack(frame: FrameType | None) -> str:
    """Returns a line for each frame, innermost first: ``line first_line name<TAB>file``."""
    lines: list[str] = []
    while frame is not None and len(lines) < _DEEPEST:
        code = frame.f_code
        if code.co_filename == _LAUNCHER:
            break
        name = getattr(code, "co_qualname", code.co_name)
        lines.append(f"{frame.f_lineno} {code.co_firstlineno} {name}\t{code.co_filename}")
        frame = frame.f_back
    return "\n".join(lines)
