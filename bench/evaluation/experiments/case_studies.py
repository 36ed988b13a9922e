"""Two packages that allocate what they need not: what nthbyte shows, and what a local change is worth; docs/case-study.md tells it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.experiment import Bench, Experiment, Raw
from evaluation.interpreters import BENCH, PACKAGES, PROGRAMS, Interpreter, own, profiled, pypys
from evaluation.pairs import PLAIN, Command, Failed, measure, plain, ratio, rss
from evaluation.profile import summary
from evaluation.words import bytes_text, table

CHANGES = BENCH / "evaluation" / "changes"
CHANGED = "changed"


@dataclass(frozen=True)
class Case:
    """A package, the program that uses it, and the function that allocates."""

    package: str
    program: str
    function: str
    pypy: bool

    def interpreters(self) -> list[Interpreter]:
        """Where it is measured."""
        return pypys() if self.pypy else [own()]


CASES = (
    Case("markdown", "markdown_document", "FencedBlockPreprocessor.run", False),
    Case("docutils", "docutils_html", "_fast_findall", True),
)


def run(bench: Bench) -> Raw:
    """Measures each case with the package as it is, and changed by its patch."""
    rows: list[dict[str, Any]] = []
    for case, python in bench.track(list(_measured(bench)), "cases"):
        copy = _changed_copy(case, bench.folder / case.package)
        script = str(PROGRAMS / f"{case.program}.py")
        environment = {"PYTHONPATH": f"{copy}:{PACKAGES}", "PYTHONDONTWRITEBYTECODE": ""}
        if python.is_pypy:
            environment["PYPY_GC_NURSERY"] = "4M"
        as_it_is = environment | {"PYTHONPATH": PACKAGES}
        base = Command([python.path, script], PROGRAMS, as_it_is)
        variants = {CHANGED: Command([python.path, script], PROGRAMS, environment), PLAIN: base}
        before, output = _profile(bench, python, case, as_it_is)
        after, changed_output = _profile(bench, python, case, environment)
        if output != changed_output:
            raise Failed(f"{case.package}: the changed package has another output")
        rows.append(
            {
                "package": case.package,
                "version": _version(case.package),
                "function": case.function,
                "interpreter": python.name,
                "before": before,
                "after": after,
                "pairs": measure(base, variants, bench.rounds(5), python, warm=not bench.quick),
            }
        )
        bench.keep({"rows": rows})
    return {"rows": rows}


def _measured(bench: Bench) -> Iterator[tuple[Case, Interpreter]]:
    if bench.quick:
        # The shortest program, on the fastest interpreter for it.
        yield CASES[1], own()
        return
    for case in CASES:
        those = case.interpreters()
        if not those:
            bench.note(f"{case.package} is not measured: PyPy is not installed.")
        yield from ((case, one) for one in those)


def _changed_copy(case: Case, to: Path) -> Path:
    """A folder that has a copy of the package with the patch applied."""
    if not to.exists():
        shutil.copytree(Path(PACKAGES) / case.package, to / case.package)
        patch = CHANGES / f"{case.package}.patch"
        words = ["patch", "--quiet", "--strip=1", f"--directory={to}", f"--input={patch}"]
        subprocess.run(words, check=True, capture_output=True, text=True)
    return to


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)


def _output(python: Interpreter, command: Command) -> str:
    words = python.words(list(command.words[1:]), command.folder)
    environment = {**python.environment(), **(command.environment or {})}
    return subprocess.run(
        words, cwd=command.folder, env=environment, check=True, capture_output=True, text=True
    ).stdout


def _profile(
    bench: Bench, python: Interpreter, case: Case, environment: dict[str, str]
) -> tuple[dict[str, Any], str]:
    """What nthbyte says of the program and of the function, each with its interval; and what the program prints."""
    out = bench.folder / "case.nthb"
    script = str(PROGRAMS / f"{case.program}.py")
    words = profiled(python, out, [script], "32KiB")
    output = _output(python, Command(words, PROGRAMS, environment))
    found = summary(out, "--top", "1000")
    rows = [row for row in found["rows"] if row["name"].endswith(case.function)]
    figures = {
        "all": found["all"]["bytes"],
        "function": rows[0]["self_bytes"] if rows else None,
        "rank": found["rows"].index(rows[0]) + 1 if rows else None,
    }
    return figures, output


def lines(raw: Raw) -> list[str]:
    """The table, and what its columns are."""
    return [
        "Two packages from the programs above, as published and with one function changed; the output is the same. *Allocated* is what nthbyte says, at 32 KiB. *Changed* is",
        "CPU time over that of the published package, without nthbyte. [The case study](case-study.md) tells how each was found.",
        "",
        *rows(raw),
    ]


def rows(raw: Raw) -> list[str]:
    """The table."""
    cells = []
    for row in raw["rows"]:
        before, after = row["before"], row["after"]
        one, other = (
            bytes_text(each["function"]["estimate"]) if each["function"] else "not seen"
            for each in (before, after)
        )
        cells.append(
            [
                f"{row['package']} {row['version']}",
                row["interpreter"],
                f"`{row['function']}`",
                f"{bytes_text(before['all']['estimate'])} → {bytes_text(after['all']['estimate'])}",
                f"{one} → {other}",
                f"{plain(row['pairs']).median:.2f} s",
                ratio(row["pairs"], CHANGED).text(),
                ratio(row["pairs"], PLAIN).text(),
                f"{rss(row['pairs'], CHANGED):.3f}",
            ]
        )
    head = [
        "package",
        "interpreter",
        "function",
        "allocated",
        "by the function",
        "CPU",
        "changed",
        "control",
        "peak RSS",
    ]
    return table(head, cells)


EXPERIMENT = Experiment("case-studies", "Case studies", run, lines)
