"""Measures what native memory costs: pairs of malloc and free from one and two threads, plain and profiled.

    PYTHON bench/native/measure.py [ROUNDS]

PYTHON has nthbyte installed. The ways run in turn, and the least time of each counts: other programs on the machine
only add time. Each run measures many short pieces of a few hundred microseconds and takes the least, so that a busy
machine matters little. The last cases have work between the calls: about 20 million calls a second. Prints a row for
each case: nanoseconds per pair, and the ratio.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from turns import least

HERE = Path(__file__).parent
# Size in bytes, threads, steps of work between the calls of a pair.
CASES = [(64, 1, 0), (64, 2, 0), (1000, 1, 0), (64, 1, 190), (64, 2, 190), (1000, 1, 190), (1000, 2, 190)]

PROGRAM = """
import ctypes, sys, threading, time
library, size, threads, work = sys.argv[1], *map(int, sys.argv[2:])
pairs = ctypes.CDLL(library).pairs
pairs.argtypes = [ctypes.c_long, ctypes.c_size_t, ctypes.c_long]
count = 5000 if work else 20_000
least = []
def measure():
    best = float("inf")
    for _ in range(300):
        before = time.thread_time_ns()
        pairs(count, size, work)
        best = min(best, (time.thread_time_ns() - before) / count)
    least.append(best)
all = [threading.Thread(target=measure) for _ in range(threads)]
for one in all: one.start()
for one in all: one.join()
print(sum(least) / threads)
"""


def main() -> None:
    """Prints the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "pairs.so")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, HERE / "pairs.c"], check=True)
        Path(folder, "app.py").write_text(PROGRAM)
        print("| size | threads | calls a second and thread | plain, ns | profiled, ns | ratio |")
        print("|---|---|---|---|---|---|")
        for size, threads, work in CASES:
            program = ["app.py", library, str(size), str(threads), str(work)]
            words = [sys.executable, "-m", "nthbyte", "run", "-q", "-f", "-o", "out.nthb", *program]
            plain, profiled = least([sys.executable, *program], words, rounds, folder)
            rate = f"{2000 / plain:.0f} million"
            ratio = profiled / plain
            print(f"| {size} | {threads} | {rate} | {plain:.2f} | {profiled:.2f} | {ratio:.3f} |", flush=True)


if __name__ == "__main__":
    main()
