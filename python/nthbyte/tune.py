"""``nthbyte tune``: finds the size of PyPy's nursery with which a program runs fastest.

PyPy allocates new objects in the nursery and derives its size from the last-level cache. If that cache is large
or shared, or if most objects die at once, another size can be much faster. This command runs the program
with several sizes, alternating between them, and shows the times.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import tempfile

from nthbyte._arguments import Parser
from nthbyte._command_line import fail, split
from nthbyte._size import format_size, parse_size

DEFAULT_SIZES = "256K,512K,1M,2M,4M,8M,16M,32M"

# The longest line of the program's errors that is shown, in bytes.
_LONGEST_LINE = 500

# A size counts as faster than PyPy's own choice only if it saves more than this fraction of the time.
NOTICEABLE = 0.03


def main(words: list[str]) -> int:
    """Runs ``nthbyte tune`` and returns its exit status. Exits on an error.

    ``words`` are the arguments after ``nthbyte tune``.
    """
    own, found = split(words, lambda word, _: word in ("--sizes", "--runs"))
    program = found.command_line if found else []
    options = _parser().parse_args(own)
    if sys.implementation.name != "pypy":
        fail("tune is for PyPy: run it as pypy3 -m nthbyte tune app.py", 1)
    if not program:
        fail("nothing to run: nthbyte tune (SCRIPT | -m MODULE | -c CODE) [ARGS...]", 2)
    if options.runs < 1:
        fail(f"--runs is at least 1, not {options.runs}", 2)
    try:
        sizes = [parse_size(text) for text in options.sizes.split(",")]
    except ValueError as error:
        fail(str(error), 2)
    if min(sizes) < 1:
        fail(f"--sizes are at least 1 byte, not {min(sizes)}", 2)
    try:
        return _compare(program, sizes, options.runs)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        fail("interrupted before all sizes were tried", 128 + signal.SIGINT)


def _compare(program: list[str], sizes: list[int], runs: int) -> int:
    """Runs the program with each size, shows the times, and returns the exit status."""
    candidates: list[int | None] = [None, *sizes]
    own = _own_size()
    times: dict[int | None, list[float]] = {size: [] for size in candidates}
    for _ in range(runs):
        for size in candidates:
            status, seconds, said = _run(program, size)
            if status:
                if times[None]:
                    # The end of the line of dots.
                    print(file=sys.stderr)
                how = f"by signal {-status}" if status < 0 else f"with status {status}"
                nursery = "" if size is None else f" with a nursery of {format_size(size)}"
                reason = f" ({said})" if said else ""
                fail(f"the program ended {how}{nursery}{reason}; tune needs one that succeeds", 1)
            times[size].append(seconds)
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    _report({size: min(taken) for size, taken in times.items()}, own)
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="nthbyte tune",
        usage="nthbyte tune [OPTIONS] (SCRIPT | -m MODULE | -c CODE) [ARGS...]",
        description="Run a program with several sizes of PyPy's nursery and show which is fastest.",
        allow_abbrev=False,
    )
    parser.add_argument("--sizes", default=DEFAULT_SIZES, help=f"sizes to try (default: {DEFAULT_SIZES})")
    parser.add_argument(
        "--runs", type=int, default=3, metavar="N", help="runs of each; the best counts (default: 3)"
    )
    # For the help: `split` has taken it.
    parser.add_argument("program", nargs="*", help="the program to run")
    return parser


def _own_size() -> int | None:
    """Returns the nursery size that PyPy chooses itself; None if it is not available."""
    environment = {name: value for name, value in os.environ.items() if name != "PYPY_GC_NURSERY"}
    code = "import gc; print(gc._get_stats(False).nursery_size)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    return int(done.stdout) if re.fullmatch(r"\d+\s*", done.stdout) else None


def _run(program: list[str], size: int | None) -> tuple[int, float, str]:
    """Runs the program, hides its output, and returns its status, its CPU time and its last line on stderr."""
    environment = dict(os.environ)
    environment.pop("PYPY_GC_NURSERY", None)
    if size is not None:
        environment["PYPY_GC_NURSERY"] = str(size)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile() as errors:
        done = subprocess.run(
            [sys.executable, *program],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        errors.seek(max(errors.seek(0, os.SEEK_END) - _LONGEST_LINE, 0))
        lines = errors.read().decode(errors="replace").split("\n")
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return done.returncode, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, said


def _report(best: dict[int | None, float], own: int | None) -> None:
    usual = best[None]
    print(f"{'nursery':>16}  {'CPU time':>9}  {'against PyPy':>12}")
    for size, seconds in best.items():
        name = format_size(size) if size is not None else "PyPy's choice"
        print(f"{name:>16}  {seconds:>7.2f} s  {seconds / usual:>12.2f}")
    chosen = f" ({format_size(own)})" if own else ""
    fastest = min(best, key=lambda size: best[size])
    if fastest is None or best[fastest] > usual * (1 - NOTICEABLE):
        print(f"PyPy's own choice{chosen} is as fast as any.")
        return
    print(
        f"{format_size(fastest)} is {usual / best[fastest]:.2f} times as fast as PyPy's own choice{chosen}:"
    )
    print(f"PYPY_GC_NURSERY={fastest}")
