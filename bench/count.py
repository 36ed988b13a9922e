"""Counts instructions and cache misses of real programs with and without nthbyte, on a simulated processor.

On a shared machine, times vary by more than the difference to measure; counts do not vary. Cachegrind
counts instructions, and simulates a first-level cache of 32 KiB and a last-level cache of 1 MiB. A second
run, whose cache lines are 4 KiB pages of memory, simulates a TLB of 64 entries and one of 1536. The simulation
has no huge pages, and does not include the kernel.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

from evaluation.interpreters import PROGRAMS, own, profiled, scripts
from evaluation.words import table

CACHES = ("--I1=32768,8,64", "--D1=32768,8,64", "--LL=1048576,16,64")
TLBS = ("--I1=32768,8,64", "--D1=262144,4,4096", "--LL=6291456,12,4096")
COUNTED = re.compile(r"==\d+== (I +refs|D1 +misses|LLd +misses): +([\d,]+)")


@dataclass(frozen=True)
class Counts:
    """The counts of one run of a program."""

    instructions: int
    first_level_misses: int
    last_level_misses: int
    tlb_misses: int

    def over(self, plain: Counts) -> list[float]:
        """The ratios to another run."""
        return [mine / its for mine, its in zip(vars(self).values(), vars(plain).values())]


def simulate(command: list[str], sizes: tuple[str, ...]) -> dict[str, int]:
    """Runs a command under cachegrind. Exits if it fails."""
    cachegrind = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null"]
    finished = subprocess.run(
        [*cachegrind, *sizes, *command],
        cwd=PROGRAMS,
        env=os.environ | {"PYTHONHASHSEED": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if finished.returncode:
        sys.exit(f"failed: {' '.join(command)}\n{finished.stderr}")
    return {re.sub(" +", " ", what): int(n.replace(",", "")) for what, n in COUNTED.findall(finished.stderr)}


def count(command: list[str]) -> Counts:
    """Counts one run of a command; it is run twice."""
    caches, tlbs = simulate(command, CACHES), simulate(command, TLBS)
    return Counts(caches["I refs"], caches["D1 misses"], caches["LLd misses"], tlbs["D1 misses"])


def main() -> None:
    """Counts the programs that the command line selects, with this interpreter, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", default="512KiB", help="the period (default: %(default)s)")
    parser.add_argument("--only", nargs="*", help="programs, without .py")
    options = parser.parse_args()
    programs = scripts(options.only)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        commands: list[list[str]] = []
        for script in programs:
            program, profile = [str(script)], Path(folder, f"{script.stem}.nthb")
            commands += [[own().path, *program], profiled(own(), profile, program, options.every)]
        counts = list(pool.map(count, commands))
    ratios = [other.over(plain) for plain, other in zip(counts[::2], counts[1::2])]
    rows = [
        [script.stem, f"{plain.instructions / 1e6:,.0f} million", *(f"{one:.3f}" for one in those)]
        for script, plain, those in zip(programs, counts[::2], ratios)
    ]
    rows.append(["**geometric mean**", "", *(f"**{geometric_mean(column):.3f}**" for column in zip(*ratios))])
    kinds = ["instructions", "first-level misses", "last-level misses", "TLB misses"]
    print(f"{own().name}: cachegrind's counts at {options.every}, to plain.\n")
    print("\n".join(table(["program", "instructions, plain", *kinds], rows)))


if __name__ == "__main__":
    main()
