"""Runs suites with nthbyte and without, and writes docs/compatibility.md. See README.md.

Usage: python -m compatibility [--only PATTERN] [--interpreter PATTERN] [--what interpreters|packages|all] [--jobs N]
       [--options WORDS] [--again] [--quick] [--keep]
"""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import random
import shlex
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from tqdm import tqdm

from compatibility import chosen, comparison, document, packages, results, stdlib
from compatibility.comparison import Result
from compatibility.results import Record
from harness import REPOSITORY, Interpreter, interpreters

# The interpreter of packages, unless another is named: one that has wheels of all of them.
OF_PACKAGES = "cpython-3.13.0-pyenv"


@dataclass(frozen=True)
class Job:
    """Suites that are to be compared, in one run."""

    host: str
    suites: list[str]
    run: Callable[[list[str], bool], tuple[Result, list[str]]]
    """Returns the result, and the versions of what was installed; runs once only if it is told so."""


def main() -> int:
    """Runs what the arguments choose and is not there yet; returns the exit status."""
    arguments = _parser().parse_args()
    options = shlex.split(arguments.options)
    if arguments.document:
        document.write(results.load_all(), results.modules(), packages.table())
        return 0
    there = set() if arguments.again else results.covered(options)
    jobs = [
        job
        for job in _jobs(arguments, options)
        if _matches(job.suites[0], arguments.only) and (job.host, job.suites[0]) not in there
    ]
    # A run that is stopped has something of everything.
    random.Random(0).shuffle(jobs)
    jobs.sort(key=lambda job: any(job.suites[0].startswith(slow) for slow in stdlib.SLOW))
    jobs = _batches(jobs, arguments.batch)
    differing = 0
    total = sum(len(job.suites) for job in jobs)
    with ThreadPoolExecutor(arguments.jobs) as pool, tqdm(total=total, unit="suite", smoothing=0) as bar:
        running = [pool.submit(_run, job, options) for job in jobs]
        try:
            for done in as_completed(running):
                for record in done.result():
                    differing += bool(record.result["differences"])
                    if line := _line(record):
                        bar.write(line, sys.stderr)
                    bar.update(len(record.suites))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    document.write(results.load_all(), results.modules(), packages.table())
    return 1 if differing else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="compatibility", description="Compares suites with nthbyte and without."
    )
    parser.add_argument("--only", default="*", help="patterns of modules or packages, with commas")
    parser.add_argument("--interpreter", default="", help="a pattern of interpreters, as in cpython-3.14*")
    parser.add_argument("--what", default="all", choices=["all", "interpreters", "packages"])
    parser.add_argument("--batch", type=int, default=1, help="how many modules run in one process")
    parser.add_argument("--jobs", type=int, default=1, help="how many suites run at once")
    parser.add_argument("--options", default="", help="options of nthbyte run, as in '--native'")
    parser.add_argument("--limit", type=float, default=stdlib.LIMIT, help="seconds that a module may take")
    parser.add_argument("--document", action="store_true", help="only write the document again")
    parser.add_argument("--again", action="store_true", help="also what has a result")
    parser.add_argument(
        "--quick", action="store_true", help="only the modules of `make test`, on each interpreter"
    )
    parser.add_argument("--keep", action="store_true", help="keep what is installed for packages")
    return parser


def _jobs(arguments: argparse.Namespace, options: list[str]) -> list[Job]:
    jobs = []
    if arguments.what != "packages":
        for one in interpreters():
            if not _matches(str(one), arguments.interpreter or "*"):
                continue
            results.save_modules({str(one): stdlib.modules(one)})
            for module in stdlib.modules(one):
                if module not in stdlib.NOT_RUN and (not arguments.quick or module in chosen.MODULES):
                    jobs.append(_of_a_module(one, module, options, arguments.limit))
    if arguments.what != "interpreters" and not arguments.quick:
        for one in interpreters():
            if _matches(str(one), arguments.interpreter or OF_PACKAGES):
                for package in packages.table().packages:
                    jobs.append(_of_a_package(one, package, options, arguments.keep))
    return jobs


def _matches(name: str, patterns: str) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns.split(","))


def _batches(jobs: list[Job], size: int) -> list[Job]:
    """Puts modules of one interpreter together, except slow ones."""
    batches: list[Job] = []
    open_ones: dict[str, Job] = {}
    for job in jobs:
        batch = open_ones.get(job.host)
        if job.host.startswith("packages") or any(job.suites[0].startswith(slow) for slow in stdlib.SLOW):
            batches.append(job)
        elif batch and len(batch.suites) < size:
            batch.suites.extend(job.suites)
        else:
            open_ones[job.host] = job
            batches.append(job)
    return batches


def _of_a_module(interpreter: Interpreter, module: str, options: list[str], limit: float) -> Job:
    def run(modules: list[str], once: bool) -> tuple[Result, list[str]]:
        return comparison.compare(stdlib.suite(interpreter, *modules, limit=limit), options, once=once), []

    return Job(str(interpreter), [module], run)


def _of_a_package(interpreter: Interpreter, package: packages.Package, options: list[str], keep: bool) -> Job:
    def run(_suites: list[str], once: bool) -> tuple[Result, list[str]]:
        try:
            with packages.prepared(package, interpreter, keep) as suite:
                result = comparison.compare(suite, options, once=once)
                if "passed" not in result.counts and not result.differences:
                    result = Result(
                        comparison.NOT_PREPARED, output="none of its tests passes without nthbyte here"
                    )
                return result, packages.versions(package, interpreter)
        except packages.NotPreparedError as error:
            return Result(comparison.NOT_PREPARED, output=str(error)), []

    return Job(f"packages-{interpreter}", [package.name], run)


def _run(job: Job, options: list[str]) -> list[Record]:
    """Runs a job and saves its results. Modules that differ when they run together are run one by one."""
    together = len(job.suites) > 1
    result, versions = job.run(job.suites, together)
    if together and (result.state != comparison.COMPARED or result.differences):
        return [record for suite in job.suites for record in _run(Job(job.host, [suite], job.run), options)]
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    record = Record(job.host, job.suites, options, date, _commit(), result.as_json(), versions)
    results.save(record)
    return [record]


def _line(record: Record) -> str | None:
    """Returns what there is to say about a result; None if all is the same."""
    where = f"{record.host} {' '.join(record.suites)}"
    if differences := record.result["differences"]:
        return f"{where}: {len(differences)} differ: {', '.join(one['test'] for one in differences[:3])}"
    if record.result["state"] != comparison.COMPARED:
        return f"{where}: {record.result['state']} {record.result['output']}".rstrip()
    return None


def _commit() -> str:
    """Returns the last commit that changed tested code."""
    words = ["git", "-C", str(REPOSITORY), "log", "-1", "--format=%h", "--", "crates", "python"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
