"""The cost of a time sample, from the signal to the end of the handler, and what the writer thread adds.

    signals.py TURNS [native]

It sends itself the signals that a timer sends, thousands of them, on stacks of different depths. The same signals
without a session are the base, so the delivery of the signal itself is not in the figures. The least of the turns
counts. With ``native``, the samples have the frames of native code. Prints JSON: for each depth, microseconds in the
handler, and with the writer thread. For x86-64 only.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable

import nthbyte

DEPTHS = (5, 20, 50, 200)
TICKS = 5_000

# `siginfo_t` of a timer's signal: the numbers of the signal, no error, SI_TIMER, padding, timer, overrun, value. The
# value is the mark of nthbyte's timers and the number of the first one.
_INFO = struct.pack("iiiiiiQ", signal.SIGURG, 0, -2, 0, 0, 0, 0x6E746862 << 32).ljust(128, b"\0")
_RT_TGSIGQUEUEINFO = 297
_syscall = ctypes.CDLL(None).syscall


def send() -> None:
    """Sends the signals to this thread."""
    process, thread, number = os.getpid(), threading.get_native_id(), int(signal.SIGURG)
    for _ in range(TICKS):
        if _syscall(_RT_TGSIGQUEUEINFO, process, thread, number, _INFO):
            sys.exit("this system does not let a process send itself such signals")


def nested(depth: int, function: Callable[[], float]) -> float:
    """Calls a function with this many more frames on the stack."""
    return nested(depth - 1, function) if depth else function()


def nanos(clock: int) -> Callable[[], float]:
    """A function that measures one signal."""

    def measure() -> float:
        before = time.clock_gettime_ns(clock)
        send()
        return (time.clock_gettime_ns(clock) - before) / TICKS

    return measure


def least(clock: int, depth: int, turns: int, folder: str, is_on: bool, has_native: bool = False) -> float:
    """The least cost of one signal, in nanoseconds."""
    costs = []
    for _ in range(turns):
        if is_on:
            out = os.path.join(folder, "out.nthb")
            nthbyte.start(out, force=True, every="1TiB", cpu=True, native_frames=has_native)
        costs.append(nested(depth, nanos(clock)))
        if is_on:
            nthbyte.stop()
    return min(costs)


def main(turns: int, has_native: bool) -> dict[int, list[float]]:
    """The microseconds of each depth."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        # The handler stays installed after the session, and does nothing then.
        least(time.CLOCK_THREAD_CPUTIME_ID, 0, 1, folder, True)
        for depth in DEPTHS:
            costs = [
                least(clock, depth - 5, turns, folder, True, has_native)
                - least(clock, depth - 5, turns, folder, False)
                for clock in (time.CLOCK_THREAD_CPUTIME_ID, time.CLOCK_PROCESS_CPUTIME_ID)
            ]
            found[depth] = [cost / 1000 for cost in costs]
    return found


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), sys.argv[2:] == ["native"])))
