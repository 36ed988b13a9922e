"""Measures what ``nthbyte run -- ./program`` costs: pairs of malloc and free in a program of C, plain and profiled.

    PYTHON bench/native/program.py [ROUNDS]

PYTHON has nthbyte installed. The two ways run in turn, and the least time of each counts: other programs on the
machine only add time. Prints a row for each case: nanoseconds per pair, and the ratio.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from turns import least

HERE = Path(__file__).parent
# Pairs, size, and steps of work between the two calls.
CASES = [(20_000_000, 64, 0), (20_000_000, 1000, 0), (3_000_000, 64, 100), (3_000_000, 1000, 100)]


def main() -> None:
    """Prints the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "loop")
        subprocess.run(["cc", "-O2", "-o", program, HERE / "loop.c"], check=True)
        print("| size | pairs a second | plain, ns | profiled, ns | ratio |\n|---|---|---|---|---|")
        for pairs, size, work in CASES:
            words = [program, str(pairs), str(size), str(work)]
            launcher = [sys.executable, "-m", "nthbyte", "run", "-q", "-f", "-o", "out.nthb", "--"]
            plain, profiled = least(words, [*launcher, *words], rounds, folder)
            rate = f"{1000 / plain:.0f} million"
            print(f"| {size} | {rate} | {plain:.2f} | {profiled:.2f} | {profiled / plain:.2f} |", flush=True)


if __name__ == "__main__":
    main()
