"""Runs the experiments, keeps their raw results and plots, and writes the pages made of them.

    bench/run.py [--quick] [--only NAME…]      # measures, then writes the pages
    bench/run.py --pages                       # only writes the pages, from the raw results that are kept
    bench/run.py --list

An experiment whose tool is missing says so, and the rest goes on. If one fails, the exit status is 1.
Quick runs leave docs/ as it is: their results and pages are in build/bench/quick.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from evaluation import machine, page, results
from evaluation.experiment import INCOMPLETE, Bench, Experiment, Missing, Raw
from evaluation.interpreters import ROOT
from evaluation.pairs import Failed
from evaluation.registry import ALL
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def main() -> int:
    """Runs what the command line selects; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="measure just enough to see that everything works"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these experiments")
    parser.add_argument(
        "--rounds", type=int, default=1000, metavar="N", help="measure each pair N times at most"
    )
    parser.add_argument("--pages", action="store_true", help="measure nothing, write the pages")
    parser.add_argument("--list", action="store_true", help="print the names of the experiments")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{one.name:16} {one.title}" for one in ALL))
        return 0
    unknown = set(options.only or ()) - {one.name for one in ALL}
    if unknown:
        parser.error(f"no such experiment: {', '.join(sorted(unknown))}; --list prints them all")
    failed = []
    if not options.pages:
        chosen = [one for one in ALL if not options.only or one.name in options.only]
        failed = _measure_all(chosen, options.quick, options.rounds)
    for path in (
        page.write(results.QUICK, ROOT / "build" / "bench" / "quick") if options.quick else page.write()
    ):
        print(f"wrote {path}")
    return 1 if failed else 0


def _measure_all(chosen: list[Experiment], quick: bool, rounds: int) -> list[str]:
    """Measures, keeps the results, and returns the names of those that failed."""
    failed = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        whole = progress.add_task("experiments", total=len(chosen))
        for one in chosen:
            progress.update(whole, description=one.name)
            begin = time.monotonic()
            outcome = _measure(one, quick, rounds, progress)
            if outcome:
                failed.append(one.name)
            progress.print(f"{one.name}: {time.monotonic() - begin:.0f} s{outcome}", markup=False)
            progress.advance(whole)
    return failed


def _measure(one: Experiment, quick: bool, rounds: int, progress: Progress) -> str:
    """Measures one experiment and keeps its result; returns what went wrong."""
    before, begin = machine.load(), time.monotonic()
    outcome = ""

    def keep(raw: Raw | None, *more: str) -> None:
        results.Result(
            experiment=one.name,
            version=_commit(),
            date=time.strftime("%Y-%m-%d", time.gmtime()),
            seconds=round(time.monotonic() - begin),
            machine=machine.describe(),
            load=[before, machine.load()],
            raw=raw,
            notes=[*bench.notes, *more],
        ).save(results.QUICK if quick else results.KEPT)

    with tempfile.TemporaryDirectory(prefix="nthbyte-bench-") as folder:
        bench = Bench(quick, Path(folder), progress, rounds, lambda raw: keep(raw, INCOMPLETE))
        try:
            keep(one.measure(bench))
        except Missing as error:
            bench.note(f"Not measured: {error}.")
            keep(None)
        except (Failed, subprocess.CalledProcessError) as error:
            # What was measured before is kept.
            outcome = f", FAILED: {error} {getattr(error, 'stderr', None) or ''}"
        for task in progress.task_ids[1:]:
            progress.remove_task(task)
    for note in bench.notes:
        progress.print(f"{one.name}: {note}", markup=False)
    return outcome


def _commit() -> str:
    """The commit, and whether anything differs from it but docs/ and README.md, where the results are."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout.strip()

    commit = git("describe", "--always")
    kept = (":(top,exclude)docs", ":(top,exclude)README.md")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", *kept)
    return (f"{commit}-dirty" if changed else commit) or "unknown"


if __name__ == "__main__":
    sys.exit(main())
