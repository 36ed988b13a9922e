"""``nthbyte diff`` on real interpreters: pairs of which one differs in a known way, and pairs that do not differ.

All runs have fixed work, so that no outcome depends on the machine's speed. Seeds are fixed, but what an interpreter
allocates by itself moves the sample points; so assertions about an estimate hold within six standard deviations.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness import COMMAND, Done, Interpreter, cpythons, report, run, summary

# Fifty functions that do the same work, but for one that does CHANGE per cent more.
FIFTY = """
import sys
{functions}
for step in range(5):
    for number, function in enumerate((
        {names}
    )):
        function(50 * (100 + int(sys.argv[1])) // 100 if number == 17 else 50)
"""
FUNCTION = """
def function_{}(count):
    buffers = []
    for i in range(count):
        buffers.append(bytes(4000 + i % 7))
    return buffers
"""

POINTS = """
class Point:
    {slots}
    def __init__(self, x, y):
        self.x, self.y, self.z = x, y, None

def build():
    return [Point(n, n) for n in range(20000)]

def other():
    return [(n, n) for n in range(20000)]

kept = build(), other()
"""

JOIN = """
def report(count):
    {body}

def other(count):
    return [str(n) * 20 for n in range(count)]

for _ in range(5):
    report(600)
    other(600)
"""
QUADRATIC = "lines = []\n    for n in range(count):\n        lines = lines + [n]\n    return lines"
LINEAR = "lines = []\n    for n in range(count):\n        lines.append(n)\n    return lines"


def fifty() -> str:
    functions = "".join(FUNCTION.format(number) for number in range(50))
    names = ", ".join(f"function_{number}" for number in range(50))
    return FIFTY.format(functions=functions, names=names)


def record(
    interpreter: Interpreter, folder: Path, program: str, *words: str, every: str, seed: int = 1
) -> Path:
    """Runs a program, and returns its profile. If the machine was too busy to record all, the program runs again."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "app.py").write_text(program)
    profile = folder / f"{seed}.nthb"
    options = [
        "run",
        "-q",
        "--every",
        every,
        "--seed",
        str(seed),
        "-o",
        profile.name,
        folder / "app.py",
        *words,
    ]
    for _ in range(10):
        interpreter.nthbyte(*options, folder=folder, environment={"PYTHONHASHSEED": "0"}).ok()
        if not summary(profile)["lost"]:
            return profile
        for written in folder.glob(f"{seed}.*nthb"):
            written.unlink()
    raise AssertionError("samples were lost in each of ten runs")


def diff(*arguments: str | Path, status: int = 0) -> Any:
    """Returns ``nthbyte diff --json``."""
    done = report("diff", *arguments, "--json", folder=Path("/"))
    assert done.status == status, done.err
    return json.loads(done.out)


def significant(found: Any, measure: str = "bytes") -> list[Any]:
    return [row for row in found["rows"] if row["changes"][measure]["significant"]]


def is_unchanged(change: Any) -> bool:
    """Whether the difference is within six standard deviations of none."""
    return _is_near(change, 0)


def _is_near(change: Any, truth: float) -> bool:
    """Whether the difference is within six standard deviations of the truth."""
    difference = change["difference"]
    # A 95 % interval is four standard deviations wide.
    return bool(abs(difference["estimate"] - truth) <= 1.5 * (difference["high"] - difference["low"]))


def test_eight_per_cent_in_one_function_of_fifty(interpreter: Interpreter, tmp_path: Path) -> None:
    old = record(interpreter, tmp_path / "old", fifty(), "0", every="512", seed=1)
    new = record(interpreter, tmp_path / "old", fifty(), "8", every="512", seed=2)
    found = diff(old, new)
    # In one run of some hundred, PyPy's collector takes an arena of half a megabyte while the launcher compiles, not
    # in a collection: it counts as native memory, in no function of the program.
    rows = {
        row["name"]: row["changes"]["bytes"] for row in found["rows"] if row["name"].startswith("function_")
    }
    change = rows.pop("function_17")
    assert change["significant"]
    assert _is_near(change, truth=5 * 50 * 0.08 * 4036)
    assert not _is_near(change, truth=0)
    assert all(map(is_unchanged, rows.values()))
    # The rate of false discoveries is 5 %: that one differs by chance is likely, that ten do is not.
    assert len(rows) == 49
    assert sum(other["significant"] for other in rows.values()) < 10


def test_recorded_in_full_the_difference_is_exact(cpython: Interpreter, tmp_path: Path) -> None:
    old = record(cpython, tmp_path, fifty(), "0", every="1", seed=1)
    new = record(cpython, tmp_path, fifty(), "8", every="1", seed=2)
    found = diff(old, new, "--total")
    assert found["exact"]
    rows = {row["name"]: row["changes"] for row in found["rows"] if row["name"].startswith("function_")}
    change = rows["function_17"]["bytes"]
    assert change["difference"]["low"] == change["difference"]["high"]
    assert change["difference"]["estimate"] >= 5 * 4 * 4033
    assert change["significant"]
    changed = [name for name, changes in rows.items() if changes["bytes"]["difference"]["estimate"]]
    assert changed == ["function_17"]


def test_slots_make_objects_smaller(cpython: Interpreter, tmp_path: Path) -> None:
    old = record(cpython, tmp_path, POINTS.format(slots=""), every="512", seed=1)
    new = record(cpython, tmp_path, POINTS.format(slots="__slots__ = 'x', 'y', 'z'"), every="512", seed=2)
    by_type = diff(old, new, "--by", "type", "--what", "alive")
    assert {
        row["changes"]["alive"]["difference"]["estimate"] < 0 for row in significant(by_type, "alive")[:1]
    } == {True}
    tuples = [row for row in by_type["rows"] if row["name"] == "tuple"]
    assert is_unchanged(tuples[0]["changes"]["alive"])
    total = by_type["totals"]["alive"]
    assert total["significant"]
    assert total["difference"]["high"] < 0
    by_file = diff(old, new, "--by", "file", "--what", "alive")
    assert significant(by_file, "alive")[0]["name"].endswith("app.py")
    by_function = diff(old, new, "--what", "alive")
    first = significant(by_function, "alive")[0]
    # Comprehensions are functions of their own before Python 3.12.
    assert first["name"] in ("build", "build.<locals>.<listcomp>", "Point.__init__")


def test_another_algorithm(interpreter: Interpreter, tmp_path: Path) -> None:
    old = record(interpreter, tmp_path, JOIN.format(body=QUADRATIC), every="4K", seed=1)
    new = record(interpreter, tmp_path, JOIN.format(body=LINEAR), every="4K", seed=2)
    for options in ([], ["--by", "line"], ["--what", "young"]):
        found = diff(old, new, *options)
        first = found["rows"][0]
        assert first["name"] == "report"
        change = first["changes"][found["what"]]
        assert change["significant"]
        assert change["relative"] < -0.8
    assert all(
        is_unchanged(row["changes"]["bytes"]) for row in found["rows"] if row["name"].startswith("other")
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Runs of the same program with different seeds."""
    folder = tmp_path_factory.mktemp("runs")
    return [
        record(cpythons()[0], folder, JOIN.format(body=LINEAR), every="512", seed=seed)
        for seed in range(1, 13)
    ]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Runs of another program, in another folder, with a line before all others."""
    folder = tmp_path_factory.mktemp("grown")
    program = "import sys\n" + JOIN.format(body=LINEAR).replace("str(n) * 20", "str(n) * 60")
    return [record(cpythons()[0], folder, program, every="512", seed=seed) for seed in range(21, 24)]


def test_no_change_is_no_difference(runs: list[Path]) -> None:
    # How many pairs raise an alarm, crates/report/tests/difference.rs counts.
    for one, other in zip(runs[::2], runs[1::2], strict=True):
        for row in diff(one, other)["rows"]:
            assert all(is_unchanged(change) for change in row["changes"].values()), row
        # Limits that are more than six standard deviations from no growth.
        report(
            "diff", one, other, "--fail-on", "+20%", "--fail-on", "other:+20%", "--total", folder=Path("/")
        ).ok()


TWO_SIZES = """
def churn(count):
    for i in range(count):
        kept = [i] * (1 + i % 2)
churn({count})
"""


def test_a_counted_total_is_the_same_in_each_run(cpython: Interpreter, tmp_path: Path) -> None:
    # Items of two sizes have blocks of one size: what was asked for of a block is a matter of samples.
    def run_of(name: str, count: int) -> Path:
        (tmp_path / "app.py").write_text(TWO_SIZES.format(count=count))
        words = ["run", "-q", "--no-native", "--every", "64K", "-o", f"{name}.nthb", "app.py"]
        cpython.nthbyte(*words, folder=tmp_path).ok()
        return tmp_path / f"{name}.nthb"

    first, second, more = run_of("first", 200_000), run_of("second", 200_000), run_of("more", 214_000)
    found = diff(first, second)
    assert found["old"]["bytes_counted"]
    total = found["totals"]["bytes"]
    assert abs(total["difference"]["estimate"]) < 0.002 * total["old"]["estimate"]
    assert not total["significant"]
    report("diff", first, second, "--fail-on", "+1%", folder=tmp_path).ok()
    assert report("diff", first, more, "--fail-on", "+5%", folder=tmp_path).status == 1


def test_several_runs(runs: list[Path], grown: list[Path]) -> None:
    found = diff(*runs[:3], "--", *grown, "--total")
    assert (found["old"]["runs"], found["new"]["runs"]) == (3, 3)
    [row] = [row for row in found["rows"] if row["name"] == "other"]
    change = row["changes"]["bytes"]
    assert change["significant"]
    # The lists are as long as before: 0.38, with a standard deviation of 0.02.
    assert 0.2 < change["relative"] < 0.6
    same = diff(*runs[:4], "--new", *runs[4:9])
    assert all(is_unchanged(row["changes"]["bytes"]) for row in same["rows"])


def test_what_moved_is_matched(runs: list[Path], grown: list[Path]) -> None:
    found = diff(runs[0], grown[0])
    [folder] = found["folders"]
    assert folder["old"] == str(runs[0].parent)
    assert folder["new"] == str(grown[0].parent)
    [row] = [row for row in found["rows"] if row["name"] == "report"]
    assert row["old_place"] == {"file": str(runs[0].parent / "app.py"), "line": row["line"] - 1}
    assert row["only"] is None
    assert is_unchanged(row["changes"]["bytes"])
    # Five rows are shown that may be chance: these are all of the program's.
    shown = report("diff", "--where", "app.py", runs[0], grown[0], folder=Path("/")).ok().out
    assert f"(was :{row['line'] - 1})" in shown
    prefix = f"{runs[0].parent}={grown[0].parent}"
    assert diff(runs[0], grown[0], "--strip-prefix", prefix)["rows"] == found["rows"]


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        (["+5%"], 1),
        (["+150%"], 0),
        (["+10KiB"], 1),
        (["+100MiB"], 0),
        (["other:+10%"], 1),
        (["report:+15%"], 0),
        (["report:+15%", "other:+10%"], 1),
    ],
)
def test_limits(limits: list[str], status: int, runs: list[Path], grown: list[Path]) -> None:
    words = [word for limit in limits for word in ("--fail-on", limit)]
    done = report("diff", runs[0], grown[0], "--total", *words, folder=Path("/"))
    assert done.status == status, done.err
    assert len(done.err.splitlines()) == len(limits)
    # The other way round it shrinks.
    report("diff", grown[0], runs[0], "--total", *words, folder=Path("/")).ok()


def test_a_closed_pipe_hides_no_growth(runs: list[Path], grown: list[Path]) -> None:
    words = [str(COMMAND), "diff", str(runs[0]), str(grown[0]), "--total", "--fail-on", "+5%"]
    for options in ([], ["--json"]):
        ours, its = os.pipe()
        os.close(ours)
        done = subprocess.run([*words, *options], stdout=its, stderr=subprocess.PIPE, text=True)
        os.close(its)
        assert (done.returncode, "more than 5%" in done.stderr) == (1, True), done.stderr


def test_a_profile_may_come_through_a_pipe(runs: list[Path], grown: list[Path]) -> None:
    def piped(command: str) -> Done:
        words = [str(COMMAND), str(runs[0]), str(grown[0])]
        return run(["sh", "-c", f'cat "$1" | "$0" {command}', *words], runs[0].parent)

    plain = report("diff", runs[0], grown[0], folder=Path("/")).ok().out
    assert piped('diff /dev/stdin "$2"').ok().out == plain
    # Of several, the start is read first, and then all.
    done = piped('summary /dev/stdin "$2"')
    [line] = done.err.splitlines()
    assert line.startswith("nthbyte: /dev/stdin is a pipe, ")
    assert (done.status, done.out) == (1, "")


@pytest.mark.parametrize("by", ["function", "line", "type", "file"])
def test_the_table_fits(by: str, runs: list[Path], grown: list[Path]) -> None:
    text = report("diff", runs[0], grown[0], "--by", by, folder=Path("/")).ok().out
    assert max(map(len, text.splitlines())) <= 100
    assert "bytes allocated" in text
    assert f" {by}" in text


def test_the_page(runs: list[Path], grown: list[Path], tmp_path: Path) -> None:
    words = [*runs[:2], "--", *grown, "--flamegraph"]
    plain = report("diff", *words[:-1], folder=tmp_path).ok().out
    done = report("diff", *words, "out.html", folder=tmp_path).ok()
    assert (done.out, done.err) == (plain, "nthbyte: wrote out.html\n")
    page = (tmp_path / "out.html").read_text()
    assert page.startswith("<!doctype html>")
    # None of the profiles that are compared is overwritten.
    for path in (runs[1], grown[-1]):
        before = path.read_bytes()
        done = report("diff", *words, path, "--force", folder=tmp_path)
        assert (done.status, path.read_bytes()) == (1, before)
    # By itself on standard output.
    assert report("diff", *words, "-", folder=tmp_path).ok().out == page


WRONG: dict[str, tuple[list[str], int, str]] = {
    "one profile": (["{old}"], 2, "nthbyte diff OLD NEW"),
    "three profiles": (["{old}", "{old}", "{new}"], 2, "3 profiles are given"),
    "nothing after the separator": (["{old}", "--"], 2, "--new"),
    "no limit": (["{old}", "{new}", "--fail-on", "5"], 2, "is no limit"),
    "a limit in seconds": (["{old}", "{new}", "--fail-on", "+1s"], 1, "in seconds is not one of bytes"),
    "a limit in bytes": (
        ["{old}", "{new}", "--what", "allocations", "--fail-on", "+1KiB"],
        1,
        "in bytes is not one of allocations",
    ),
    "no such row": (["{old}", "{new}", "--fail-on", "nobody:+5%"], 1, "there is no row `nobody`"),
    "no such measure": (["{old}", "{new}", "--what", "weight"], 2, "weight"),
    "no time": (["{old}", "{new}", "--what", "cpu"], 1, "cpu cannot be compared"),
    "half a prefix": (["{old}", "{new}", "--strip-prefix", "/a"], 2, "OLD=NEW"),
    "no such file": (["{old}", "{old}.not"], 1, "No such file"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_use(wrong: str, runs: list[Path], grown: list[Path]) -> None:
    words, status, said = WRONG[wrong]
    done = report("diff", *(word.format(old=runs[0], new=grown[0]) for word in words), folder=Path("/"))
    [line] = done.err.splitlines()
    assert said in line
    assert (done.status, done.out) == (status, "")


def test_time_is_compared_where_it_was_sampled(pypy: Interpreter, tmp_path: Path) -> None:
    program = (
        "import time\n"
        "def churn(n):\n    return sum(len([i] * 9) for i in range(n))\n\n"
        "end = time.process_time() + 1\n"
        "while time.process_time() < end:\n    churn(100000)\n"
    )
    (tmp_path / "app.py").write_text(program)
    for name in ("old", "new"):
        pypy.nthbyte("run", "-q", "--cpu", "200", "-o", f"{name}.nthb", "app.py", folder=tmp_path).ok()
    found = diff(tmp_path / "old.nthb", tmp_path / "new.nthb", "--what", "cpu", "--total")
    old = summary(tmp_path / "old.nthb")["time"]
    assert found["totals"]["cpu"]["old"]["estimate"] == pytest.approx(old["whole"])
    [churn] = [row for row in found["rows"] if row["name"] == "churn"]
    [its] = [row for row in old["rows"] if row["name"] == "churn"]
    assert churn["changes"]["cpu"]["old"]["estimate"] == pytest.approx(its["total_time"]["estimate"])
    # When objects that survived were freed is not known there.
    assert "alive" not in found["measures"]
    assert any("on PyPy" in note for note in found["notes"])


def test_a_family_of_processes_is_one_run(tmp_path: Path) -> None:
    program = "import multiprocessing as m\ndef f(n):\n    return len([bytes(5000) for _ in range(n)])\n"
    program += "if __name__ == '__main__':\n    with m.get_context('fork').Pool(1) as pool:\n"
    program += "        pool.map(f, [100] * 4)\n        pool.close()\n        pool.join()\n"
    sides = []
    for name in ("old", "new"):
        record(cpythons()[0], tmp_path / name, program, every="4K")
        sides.append(sorted((tmp_path / name).glob("*.nthb")))
    assert [len(side) for side in sides] == [2, 2]
    found = diff(*sides[0], "--", *sides[1], "--total")
    assert [(found[side]["runs"], found[side]["profiles"]) for side in ("old", "new")] == [(1, 2), (1, 2)]
    # The first of each family, and one file of all, say the same.
    firsts = [min(side, key=lambda path: len(path.name)) for side in sides]
    rows = [found["rows"], diff(*firsts, "--total")["rows"]]
    merged = []
    for side in sides:
        merged.append(side[0].parent / "merged")
        report("merge", *side, "-o", merged[-1], folder=tmp_path).ok()
    rows.append(diff(*merged, "--total")["rows"])
    assert rows[0] == rows[1] == rows[2]
    # Each process by its place in the family, and the sum is all's.
    by_process = diff(*firsts, "--by", "process")
    assert {row["name"] for row in by_process["rows"]} == {"first process", "process 2 by start"}
    for name, change in by_process["totals"].items():
        parts = [row["changes"][name]["old"]["estimate"] for row in by_process["rows"]]
        if name in ("allocations", "alive", "young"):
            assert sum(parts) == pytest.approx(change["old"]["estimate"])
    # Several runs of families.
    for words in ([*firsts, "--", *firsts], [*firsts, "--", *firsts, "--all"]):
        several = diff(*words)
        assert (several["old"]["runs"], several["old"]["profiles"]) == (2, 4)
    # Two processes of one run are compared with each other.
    for words in ([*firsts, "--alone"], sides[0]):
        alone = diff(*words)
        assert [alone[side]["profiles"] for side in ("old", "new")] == [1, 1]


def test_all_is_accepted_where_there_is_one_process(runs: list[Path]) -> None:
    assert diff(runs[0], runs[1], "--all") == diff(runs[0], runs[1])


@pytest.mark.skipif(shutil.which("go") is None, reason="pprof comes with Go")
def test_pprof_shows_the_same_difference(runs: list[Path], grown: list[Path], tmp_path: Path) -> None:
    for name, profile in (("old", runs[0]), ("new", grown[0])):
        report("export", profile, "--to", "pprof", "-o", f"{name}.pb.gz", folder=tmp_path).ok()
    words = [
        "go",
        "tool",
        "pprof",
        "-top",
        "-sample_index=alloc_space",
        "-diff_base",
        "old.pb.gz",
        "new.pb.gz",
    ]
    shown = run(words, tmp_path).ok().out
    rows = [line.split() for line in shown.splitlines()]
    assert any(row and row[-1].startswith("other") and not row[0].startswith("-") for row in rows), shown
