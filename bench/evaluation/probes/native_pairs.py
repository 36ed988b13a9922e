"""Calls pairs of malloc and free from threads of Python: ``native_pairs.py LIBRARY SIZE THREADS WORK``.

WORK is the number of steps of other work between the two calls. Many short pieces of a few hundred microseconds are
measured, and the least counts, so that a busy machine matters little. Prints the CPU time of a pair in nanoseconds, the mean of the threads.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time


def main() -> None:
    """Runs the threads."""
    library, size, threads, work = sys.argv[1], *map(int, sys.argv[2:])
    pairs = ctypes.CDLL(library).pairs
    pairs.argtypes = [ctypes.c_long, ctypes.c_size_t, ctypes.c_long]
    count = 5000 if work else 20_000
    least: list[float] = []

    def measure() -> None:
        best = float("inf")
        for _ in range(300):
            before = time.thread_time_ns()
            pairs(count, size, work)
            best = min(best, (time.thread_time_ns() - before) / count)
        least.append(best)

    those = [threading.Thread(target=measure) for _ in range(threads)]
    for one in those:
        one.start()
    for one in those:
        one.join()
    print(sum(least) / threads)


if __name__ == "__main__":
    main()
