"""Measures what native memory costs: pairs of malloc and free from one and two threads, plain and profiled.

    PYTHON bench/native/measure.py [ROUNDS]

PYTHON has nthbyte installed. The two ways run in turn, and the least time of each counts: other programs on the
machine only add time. Prints a row for each case: nanoseconds per pair, and the ratio.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PAIRS = 20_000_000
CASES = [(64, 1), (64, 2), (1000, 1), (1000, 2)]

PROGRAM = """
import ctypes, sys, threading, time
library, count, size, threads = sys.argv[1], *map(int, sys.argv[2:])
pairs = ctypes.CDLL(library).pairs
pairs.argtypes = [ctypes.c_long, ctypes.c_size_t]
pairs(1000, size)
spent = []
def work():
    before = time.thread_time_ns()
    pairs(count, size)
    spent.append(time.thread_time_ns() - before)
all = [threading.Thread(target=work) for _ in range(threads)]
for one in all: one.start()
for one in all: one.join()
print(sum(spent) / (count * threads))
"""


def run(words: list[str], folder: str) -> float:
    """Runs the program and returns the CPU time of a pair, in nanoseconds."""
    return float(subprocess.run(words, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main() -> None:
    """Prints the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "pairs.so")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, HERE / "pairs.c"], check=True)
        Path(folder, "app.py").write_text(PROGRAM)
        print("| size | threads | plain, ns | profiled, ns | ratio |\n|---|---|---|---|---|")
        for size, threads in CASES:
            program = ["app.py", library, str(PAIRS), str(size), str(threads)]
            plain, profiled = [], []
            for _ in range(rounds):
                plain.append(run([sys.executable, *program], folder))
                words = [sys.executable, "-m", "nthbyte", "run", "-q", "-f", "-o", "out.nthb", *program]
                profiled.append(run(words, folder))
            ratio = min(profiled) / min(plain)
            print(
                f"| {size} | {threads} | {min(plain):.2f} | {min(profiled):.2f} | {ratio:.3f} |", flush=True
            )


if __name__ == "__main__":
    main()
