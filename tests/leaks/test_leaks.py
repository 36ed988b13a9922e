"""``nthbyte leaks`` on programs with planted leaks, and on programs that only look like it."""

from __future__ import annotations

import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import harness
from leaks import planted

# Here services do not wait between their requests, so a run takes a second, and `--repeated` says what they are.
# With this period, the probability of each leak's growth by chance is below one in 10**9.
PERIOD = "4KiB"
# Of a hundred runs of a program without a leak, up to two may be accused by chance: not all four of a test.
ACCUSED = 4
# The last is a job that waits for each part of its result.
WAITING = ["leak_growing_list", "leak_growing_bytearray", "leak_growing_dict", "clean_lru", "batch_download"]


@pytest.mark.parametrize("name", planted.names("leak"))
def test_a_leak_is_found_at_its_line(name: str, tmp_path: Path) -> None:
    outcome = planted.first_right(
        lambda seed: planted.judge(name, tmp_path, seed, period=PERIOD, seconds=0),
        lambda outcome: outcome.right,
    )
    assert outcome.right, outcome.report


@pytest.mark.parametrize("name", planted.names("clean"))
def test_what_is_no_leak_is_not_accused(name: str, tmp_path: Path) -> None:
    seeds = range(planted.SEED, planted.SEED + ACCUSED)
    outcomes = (planted.judge(name, tmp_path, seed, period="16KiB", seconds=0) for seed in seeds)
    accused = list(itertools.takewhile(lambda outcome: outcome.accused, outcomes))
    assert len(accused) < ACCUSED, accused[-1].report


# What they import is in the interpreter itself.
@pytest.mark.parametrize("name", ["batch_index", "batch_table"])
def test_a_job_of_one_pass_is_not_accused(name: str, tmp_path: Path) -> None:
    outcome = planted.judge(name, tmp_path, planted.SEED)
    assert not outcome.accused and outcome.right
    (profile,) = outcome.report["profiles"]
    assert profile["repeats"] in ("too-short", "one-pass"), profile["repeats"]
    assert [finding["verdict"] for finding in profile["undecided"]].count("leak") == 0


def test_a_service_that_waits_has_a_verdict_at_the_default(tmp_path: Path) -> None:
    """The shortest run that has one, all at a time: they sleep."""

    def ask(seed: int) -> dict[str, planted.Outcome]:
        with ThreadPoolExecutor(len(WAITING)) as pool:
            running = {name: pool.submit(planted.judge, name, tmp_path, seed, seconds=21) for name in WAITING}
            return {name: run.result() for name, run in running.items()}

    outcomes = planted.first_right(ask, lambda all: sum(one.right for one in all.values()) == len(WAITING))
    for name, outcome in outcomes.items():
        report = max(outcome.report["profiles"], key=lambda profile: int(profile["samples"]))
        assert report["repeats"] in ("rounds", "collects") and report["waited"] > 0.2, (
            name,
            report["waited"],
        )
    right = [name for name, outcome in outcomes.items() if outcome.right]
    assert right == WAITING


def test_every_allocation_recorded_gives_the_same_verdicts(tmp_path: Path) -> None:
    outcome = planted.first_right(
        lambda seed: planted.judge("leak_closure", tmp_path, seed, period="1", seconds=0),
        lambda outcome: outcome.right,
    )
    assert outcome.right, outcome.report
    assert not planted.judge("clean_lru", tmp_path, planted.SEED, period="1", seconds=0).accused


def test_the_verdict_is_a_sentence_with_figures(tmp_path: Path) -> None:
    def ask(seed: int) -> tuple[Path, harness.Done]:
        folder = planted.profile("leak_traceback", tmp_path, seed, PERIOD)
        return folder, harness.report("leaks", "--repeated", "app.nthb", folder=folder).ok()

    folder, done = planted.first_right(ask, lambda answer: "no sign of levelling off" in answer[1].out)
    assert "no sign of levelling off" in done.out
    assert "parse …/programs/leak_traceback.py:9 keeps" in done.out
    assert max(map(len, done.out.splitlines())) <= 100
    failed = harness.report("leaks", "--fail", "--repeated", "app.nthb", folder=folder)
    assert (failed.status, failed.out) == (1, done.out)
    # A run of a second, that nobody says to repeat its work, is no leak, and does not fail.
    short = harness.report("leaks", "--fail", "app.nthb", folder=folder).ok().out
    assert "No verdict on leaks: it needs 20.0 s of a program that repeats its work" in " ".join(
        short.split()
    )
    assert "a minute" not in short


def test_one_leaking_worker_is_told_from_the_others(tmp_path: Path) -> None:
    def ask(seed: int) -> list[bool]:
        report = planted.judge("leak_in_one_worker", tmp_path, seed, period=PERIOD, seconds=0).report
        return sorted(bool(profile["findings"]) for profile in report["profiles"])

    # One of the others may be named by chance, too, in a few of a hundred runs.
    one_of_five = [False] * 4 + [True]
    assert planted.first_right(ask, lambda leaking: leaking == one_of_five) == one_of_five


def test_a_family_has_one_answer(tmp_path: Path) -> None:
    def verdicts(folder: Path, *words: str) -> list[Any]:
        done = harness.report("leaks", "--json", "--repeated", *words, folder=folder).ok()
        profiles = json.loads(done.out)["profiles"]
        kept = ("pid", "samples", "live", "findings", "undecided", "others")
        return sorted(
            ({name: one[name] for name in kept} for one in profiles), key=lambda one: int(one["pid"])
        )

    def ask(seed: int) -> tuple[Path, list[str], list[Any]]:
        folder = planted.profile("leak_in_one_worker", tmp_path, seed, PERIOD)
        paths = sorted(folder.glob("*.nthb"), key=lambda path: (len(path.name), path))
        files = [path.name for path in paths]
        assert (files[0], len(files)) == ("app.nthb", 5)
        return folder, files, verdicts(folder, *files)

    folder, files, by_name = planted.first_right(
        ask, lambda answer: any(one["findings"] for one in answer[2])
    )
    harness.report("merge", *files, "-o", "all.nthb", folder=folder).ok()
    assert 1 <= [bool(one["findings"]) for one in by_name].count(True) < 5
    assert verdicts(folder, "app.nthb") == by_name
    # A merged file has the clock of its first process: times may differ by a microsecond.
    merged = verdicts(folder, "all.nthb")
    for name in ("pid", "samples", "live"):
        assert [one[name] for one in merged] == [one[name] for one in by_name]
    places = [[[finding["place"] for finding in one["findings"]] for one in all] for all in (merged, by_name)]
    assert places[0] == places[1]
    # The first process alone only waits.
    [first] = verdicts(folder, "app.nthb", "--alone")
    assert not first["findings"]


def test_a_program_that_is_started_has_no_profile(tmp_path: Path) -> None:
    """As docs/leaks.md says: what leaks there is not seen."""
    (tmp_path / "child.py").write_text("kept = [bytes(5000) for _ in range(1000)]\n")
    program = "import subprocess, sys\nsubprocess.run([sys.executable, 'child.py'], check=True)\n"
    (tmp_path / "app.py").write_text(program)
    words = ["run", "-q", "--every", "16KiB", "-o", "app.nthb", "app.py"]
    harness.cpythons()[0].nthbyte(*words, folder=tmp_path).ok()
    assert [path.name for path in tmp_path.glob("*.nthb")] == ["app.nthb"]
    (profile,) = json.loads(harness.report("leaks", "--json", "app.nthb", folder=tmp_path).ok().out)[
        "profiles"
    ]
    # A false alarm about another place is possible in so short a program.
    assert "child.py" not in json.dumps(profile["findings"])


def test_too_little_is_said_to_be_too_little(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("kept = [str(number) for number in range(3000)]\n")
    words = ["run", "-q", "--every", "512KiB", "-o", "app.nthb", "app.py"]
    harness.cpythons()[0].nthbyte(*words, folder=tmp_path).ok()
    done = harness.report("leaks", "--fail", "app.nthb", folder=tmp_path).ok()
    assert "run for longer" in done.out
    assert "No verdict on leaks" in done.out


LEAK_ON_PYPY = """
kept = []
def handle(number):
    kept.append([number, str(number) * 30])
    return [str(k) for k in range(30)]
for number in range(600000):
    handle(number)
"""

NONE_ON_PYPY = """
recent = [None] * 20000
def handle(number):
    recent[number % 20000] = [number, str(number) * 30]
    return [str(k) for k in range(30)]
for number in range(600000):
    handle(number)
"""


def test_pypy_says_what_it_cannot_know(pypy: harness.Interpreter, tmp_path: Path) -> None:
    for name, program in {"leak": LEAK_ON_PYPY, "none": NONE_ON_PYPY}.items():
        (tmp_path / f"{name}.py").write_text(program)
        # A small nursery and heap: major collections do not depend on the machine's cache.
        words = ["run", "-q", "--every", "64KiB", "-o", f"{name}.nthb", f"{name}.py"]
        settings = {"PYPY_GC_NURSERY": "512K", "PYPY_GC_MIN": "4M", "PYPY_GC_MAJOR_COLLECT": "1.15"}
        pypy.nthbyte(*words, folder=tmp_path, environment=settings).ok()
        done = harness.report("leaks", "--json", "--fail", "--repeated", f"{name}.nthb", folder=tmp_path)
        report = json.loads(done.out)
        (profile,) = report["profiles"]
        assert any("PyPy does not say when an old object is freed" in limit for limit in profile["limits"])
        assert profile["findings"] == []
        assert profile["heap"]["grows"] is (name == "leak"), profile["heap"]
        assert done.status == int(name == "leak")
        assert bool(profile["undecided"]) is (name == "leak")
