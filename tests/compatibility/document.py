"""Writes docs/compatibility.md from the results that there are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from compatibility import comparison, reasons, stdlib
from compatibility.packages import Package, Table
from compatibility.results import Record
from harness import REPOSITORY

DOCUMENT = REPOSITORY / "docs" / "compatibility.md"
# The facts about ARM64, mostly from tests/emulated: written by hand, with links from its own folder.
PROCESSORS = Path(__file__).with_name("processors.md").read_text().replace("../../docs/", "")

_HEAD = """# Compatibility

A program behaves under nthbyte as it does without. The programs that say most about this are test suites: those of the
interpreters, and those of packages. Each is run twice, plainly and under `nthbyte run`, and the outcomes are compared
test by test. `nthbyte run` has its defaults, so native memory is recorded too, unless a heading names other options.
[Whole programs](compatibility-programs.md) have a page of their own.

This page is written by `make compatibility` (`tests/compatibility/`), from what was really run; modules that have not
been run are named.

- **tests**: those that were compared. A test that fails without nthbyte must fail with it, and one that is skipped must
  be skipped for the same reason.
- **unstable**: the outcome differs from run to run, with and without nthbyte. A suite with a difference is repeated, up
  to three runs on each side; a test counts here if one plain run and one profiled run agree.
- **differing**: no plain run agrees with a profiled run. Each of these is under [Differences](#differences).
- **too slow**: the suite did not end in its time limit, nor in three times that, without nthbyte either or not much
  later with it.
"""

_FIGURES = ["tests", "outcomes without nthbyte", "unstable", "differing", "of these explained"]


def write(
    records: Sequence[Record], modules: Mapping[str, Sequence[str]], table: Table, path: Path = DOCUMENT
) -> None:
    """Writes the document. ``modules`` are all modules of each interpreter."""
    path.write_text(text(records, modules, table, reasons.table()))


def text(
    records: Sequence[Record],
    modules: Mapping[str, Sequence[str]],
    table: Table,
    known: list[reasons.Reason],
) -> str:
    """Returns the document."""
    dates = sorted({one.date for one in records})
    commits = sorted({one.commit for one in records})
    lines = [_HEAD, PROCESSORS]
    if records:
        when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        lines += [f"Run on {when}, on Linux x86-64, as root, with nthbyte at {', '.join(commits)}.", ""]
    for options in sorted({tuple(one.options) for one in records}):
        those = [one for one in records if tuple(one.options) == options]
        of_packages = [one for one in those if one.host.startswith("packages-")]
        of_interpreters = [one for one in those if one not in of_packages]
        suffix = f", with `{' '.join(options)}`" if options else ""
        if of_interpreters:
            lines += [f"## The interpreters' own suites{suffix}", ""]
            lines += [*_interpreters(of_interpreters, modules, known), ""]
        if of_packages:
            lines += [f"## The suites of packages{suffix}", "", *_packages(of_packages, table, known), ""]
    lines += ["## Differences", "", *_differences(records, known), ""]
    lines += ["## Not run", "", *_not_run(records, modules, table)]
    return "\n".join(lines).rstrip() + "\n"


def _interpreters(
    records: Sequence[Record], modules: Mapping[str, Sequence[str]], known: list[reasons.Reason]
) -> Iterator[str]:
    yield "Modules of the package `test`, each by regrtest without further resources (`-u`)."
    yield ""
    yield from _head(["interpreter", "modules run, of all", "too slow", *_FIGURES])
    for host in sorted({one.host for one in records}):
        those = [one for one in records if one.host == host]
        slow = [one for one in those if one.result["state"] == comparison.TOO_SLOW]
        run = sum(len(one.suites) for one in those)
        every = max(len(modules.get(host, ())), run)
        yield f"| {host} | {run:,} of {every:,} | {len(slow)} | {_figures(those, known)} |"


def _packages(records: Sequence[Record], table: Table, known: list[reasons.Reason]) -> Iterator[str]:
    entries = {one.name: one for one in table.packages}
    hosts = sorted({one.host.removeprefix("packages-") for one in records})
    yield (
        f"By pytest, or the package's own runner, on {', '.join(hosts)}. `tests/compatibility/packages.toml` has the "
        "versions and arguments."
    )
    yield ""
    yield from _head(["package", "what it is here for", "part", *_FIGURES])
    compared = [one for one in records if one.result["state"] == comparison.COMPARED]
    for one in sorted(compared, key=lambda one: one.suites[0]):
        entry = entries.get(one.suites[0], Package("", ["?"], []))
        cells = [entry.requirement.replace("==", " "), entry.kind or "pure Python", entry.part or "all"]
        yield f"| {' | '.join(cells)} | {_figures([one], known)} |"
    if len(compared) > 1:
        yield f"| **{len(compared)} packages** | | | {_figures(compared, known)} |"


def _head(cells: Sequence[str]) -> Iterator[str]:
    yield f"| {' | '.join(cells)} |"
    yield "|" + "---|" * len(cells)


def _figures(records: Sequence[Record], known: list[reasons.Reason]) -> str:
    counts: Counter[str] = Counter()
    differing = explained = 0
    for one in records:
        counts.update(one.result["counts"])
        differing += len(one.result["differences"])
        explained += sum(
            _reason(one, difference, known) is not None for difference in one.result["differences"]
        )
    tests = sum(one.result["tests"] for one in records)
    unstable = sum(len(one.result["unstable"]) for one in records)
    outcomes = ", ".join(f"{number:,} {kind}" for kind, number in counts.items())
    return f"{tests:,} | {outcomes} | {unstable} | {differing} | {explained}"


def _reason(record: Record, difference: Mapping[str, str], known: list[reasons.Reason]) -> str | None:
    return reasons.known(known, record.host, record.suites[0], difference["test"])


def _differences(records: Sequence[Record], known: list[reasons.Reason]) -> Iterator[str]:
    differing = [(one, difference) for one in records for difference in one.result["differences"]]
    if not differing:
        yield "None."
        return
    yield from _head(["where", "test", "without", "with nthbyte", "why"])
    for one, difference in differing:
        where = " ".join([one.host, one.suites[0], *one.options])
        cells = [where, f"`{difference['test']}`", difference["plain"], difference["profiled"]]
        yield f"| {' | '.join(map(_cell, [*cells, _reason(one, difference, known) or '**not explained yet**']))} |"


def _not_run(records: Sequence[Record], modules: Mapping[str, Sequence[str]], table: Table) -> Iterator[str]:
    for name, why in sorted(table.unavailable.items()):
        yield f"- {name}: {why}."
    for one in records:
        if one.result["state"] == comparison.NOT_PREPARED:
            yield f"- {one.suites[0]}, on {one.host.removeprefix('packages-')}: {_cell(one.result['output'])}"
        if one.result["state"] == comparison.TOO_SLOW:
            yield f"- {one.host}: {one.suites[0]} is too slow here."
        if one.result["state"] == comparison.NO_TESTS and one.host.startswith("packages-"):
            yield f"- {one.suites[0]}: no test was found."
    with_a_result = {(one.host, suite) for one in records if not one.options for suite in one.suites}
    run = {name for host, name in with_a_result if host.startswith("packages-")}
    if left := [one.name for one in table.packages if one.name not in run]:
        yield f"- Packages of the table that have not been run yet: {', '.join(left)}."
    for module, why in stdlib.NOT_RUN.items():
        yield f"- {module}, on any interpreter: {why}."
    for host, names in sorted(modules.items()):
        left = [name for name in names if (host, name) not in with_a_result and name not in stdlib.NOT_RUN]
        if left and len(left) < len(names):
            yield f"- {host}, not run yet ({len(left)} modules): {_folded(left)}."
        elif left:
            yield f"- {host}: no module has been run yet."


def _folded(names: Iterable[str]) -> str:
    """Returns the names without what they all begin with."""
    return ", ".join(re.sub(r"^(test\.)?test_", "", name) for name in names)


def _cell(content: str) -> str:
    return re.sub(r"\s+", " ", content).replace("|", "\\|").strip()
