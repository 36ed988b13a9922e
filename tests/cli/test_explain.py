"""``nthbyte explain`` on real programs: the planted faults are named, and the answers are a screen."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from harness import COMMAND, Interpreter, cpythons, report, run, summary
from leaks import planted

# `churn` makes what dies young, `keep` what stays; `cycle` makes the containers that the collector finds alive.
PROGRAM = """
import gc
kept = []

def churn(number):
    return [str(n) * 20 for n in range(number)]

def keep(number):
    kept.append(bytes(3000 + number % 7))

def cycle(number):
    for n in range(number):
        one = [n]
        one.append(one)

for step in range(400):
    churn(300)
    keep(step)
    cycle(100)
gc.collect()
"""


def record(interpreter: Interpreter, folder: Path, program: str, *options: str) -> Path:
    """Runs a program, and returns its profile."""
    (folder / "app.py").write_text(program)
    words = ["run", "-q", "--seed", "7", *options, "-o", "app.nthb", "app.py"]
    interpreter.nthbyte(*words, folder=folder).ok()
    return folder / "app.nthb"


def explain(*words: str | Path, folder: Path) -> Any:
    """Returns the answers by topic, after checks that hold of all profiles."""
    text = report("explain", *words, folder=folder).ok().out
    lines = text.splitlines()
    assert len(lines) <= 24, text
    assert max(map(len, lines)) <= 100, text
    found = json.loads(report("explain", *words, "--json", folder=folder).ok().out)
    assert found["version"] == 1
    # The text is made of the sentences of the JSON, as many as have room.
    plain = " ".join(text.split())
    assert " ".join(found["answers"][0]["sentences"][0].split()) in plain
    for answer in found["answers"]:
        # A viewer waits for its browser.
        more = answer["more"]
        if more and "PROGRAM" not in more and more[1] not in ("flamegraph", "view"):
            run([str(COMMAND), *answer["more"][1:]], folder).ok()
    return {answer["topic"]: answer for answer in found["answers"]}


def test_it_names_what_was_planted(interpreter: Interpreter, tmp_path: Path) -> None:
    profile = record(interpreter, tmp_path, PROGRAM, "--every", "8KiB")
    found = explain(profile, folder=tmp_path)
    # The line that leads to most, and the one that makes most of what dies young.
    churn = [place["function"].split(".")[0] for place in found["churn"]["places"]]
    assert {churn[0], churn[-1]} <= {"churn", "<listcomp>"}
    total = summary(profile, "--domain", "all")
    assert found["collector"]["figures"]["collections"]["estimate"] == total["collections"]["count"]
    # The sums are taken in another order.
    assert found["churn"]["figures"]["young_bytes"] == pytest.approx(total["all"]["died_young"])
    if interpreter.is_pypy:
        assert "heap_bytes" in found["peak"]["figures"]
        assert "--at" not in found["peak"]["more"]
    else:
        assert found["peak"]["places"][0]["function"] == "keep"
        assert found["rss"]["figures"]["rss_bytes"]["estimate"] > 1 << 20


# Code without a file: a dataclass's, and what a library makes.
MADE = """
import dataclasses

@dataclasses.dataclass
class Point:
    numbers: object

exec(compile("def wrap(make, n): return [make(n), [n] * 200]", "<wrapper of make>", "exec"))

def make(n):
    return Point([n] * 100)

points = []
for n in range(20_000):
    points.append(wrap(make, n))
"""


@pytest.mark.parametrize("is_typed", [False, True], ids=["file", "-c"])
def test_code_without_a_file_belongs_to_what_calls_it(is_typed: bool, tmp_path: Path) -> None:
    interpreter = cpythons()[-1]
    if is_typed:
        words = ["run", "-q", "--every", "8KiB", "-o", "app.nthb", "-c", MADE]
        interpreter.nthbyte(*words, folder=tmp_path).ok()
    else:
        record(interpreter, tmp_path, MADE, "--every", "8KiB")
    peak = explain("app.nthb", folder=tmp_path)["peak"]
    places = {(place["function"].split(".")[0], Path(place["file"]).name) for place in peak["places"]}
    if is_typed:
        assert ("make", "<string>") in places
    else:
        assert places == {("<module>", "app.py"), ("make", "app.py")}, places


def test_the_collector_is_fed_by_cycles(cpython: Interpreter, tmp_path: Path) -> None:
    program = PROGRAM.replace("churn(300)", "pass").replace("cycle(100)", "cycle(3000)")
    found = explain(record(cpython, tmp_path, program, "--every", "8KiB"), folder=tmp_path)
    collector = found["collector"]
    assert collector["figures"]["collections"]["estimate"] > 100
    # Which part of the run it takes depends on the machine; below 1 % nothing more is said.
    if collector["figures"]["share"]["estimate"] >= 0.01:
        assert collector["figures"]["objects"]["estimate"] > 100000
        assert collector["places"][0]["function"] == "cycle"


def test_a_leak_comes_first(tmp_path: Path) -> None:
    def ask(seed: int) -> tuple[Path, dict[str, Any]]:
        folder = planted.profile("leak_traceback", tmp_path, seed, "4KiB")
        return folder, explain("app.nthb", "--repeated", folder=folder)

    folder, found = planted.first_right(ask, lambda answer: "leak" in answer[1])
    assert next(iter(found)) == "leak"
    leaks = json.loads(report("leaks", "app.nthb", "--repeated", "--json", folder=folder).ok().out)
    finding = leaks["profiles"][0]["findings"][0]
    assert found["leak"]["places"][0] == finding["place"]
    assert found["leak"]["figures"]["held"] == finding["held"]
    # Nobody says that so short a run repeats its work.
    short = explain("app.nthb", folder=folder)
    assert "leak" not in short
    assert short["no-leak"]["sentences"][0].startswith("No verdict on leaks: it needs 20.0 s")


def test_the_leak_of_one_worker_of_four(tmp_path: Path) -> None:
    def ask(seed: int) -> tuple[Path, dict[str, Any]]:
        folder = planted.profile("leak_in_one_worker", tmp_path, seed, "4KiB")
        return folder, explain("app.nthb", "--repeated", folder=folder)

    folder, every = planted.first_right(ask, lambda answer: "leak" in answer[1])
    assert explain("app.nthb", "--all", "--repeated", folder=folder) == every
    one = explain("app.nthb", "--alone", folder=folder)
    assert one["family"]["figures"]["profiles"]["estimate"] == 4
    assert "leak" not in one
    assert every["leak"]["sentences"][0].startswith("In process ")
    assert every["leak"]["places"][0]["function"] == "handle"
    # One file of all processes, and their files one by one, have the same answers.
    report("merge", "app.nthb", "--all", "-o", "all.nthb", folder=folder).ok()
    merged = explain("all.nthb", "--repeated", folder=folder)
    named = explain(*sorted(folder.glob("app*.nthb")), "--repeated", folder=folder)
    for other in (merged, named):
        assert {topic: other[topic]["figures"] for topic in other} == {
            topic: every[topic]["figures"] for topic in every
        }


def test_too_few_samples_are_said(interpreter: Interpreter, tmp_path: Path) -> None:
    found = explain(record(interpreter, tmp_path, "print('Hello')"), folder=tmp_path)
    assert found["period"]["more"][:3] == ["nthbyte", "run", "--every"]


def test_a_killed_program(cpython: Interpreter, tmp_path: Path) -> None:
    program = PROGRAM + "import os, time; time.sleep(2.5); os.kill(os.getpid(), 9)"
    (tmp_path / "app.py").write_text(program)
    words = ["run", "-q", "--every", "8KiB", "-o", "app.nthb", "app.py"]
    done = cpython.nthbyte(*words, folder=tmp_path)
    assert done.status == -signal.SIGKILL
    found = explain("app.nthb", folder=tmp_path)
    assert next(iter(found)) == "incomplete"


def test_every_allocation_recorded(tmp_path: Path) -> None:
    profile = record(cpythons()[0], tmp_path, PROGRAM.replace("range(400)", "range(20)"), "--every", "1")
    found = explain(profile, folder=tmp_path)
    assert "period" not in found
    figure = found["churn"]["figures"]["bytes"]
    assert figure["low"] == figure["estimate"] == figure["high"]
    assert "the figures are exact" in report("explain", profile, folder=tmp_path).ok().out


def test_time_samples(pypy: Interpreter, tmp_path: Path) -> None:
    program = "import time\nend = time.process_time() + 1\n"
    program += "def spin():\n    return sum(range(10000))\n\nwhile time.process_time() < end:\n    spin()\n"
    found = explain(record(pypy, tmp_path, program, "--cpu", "200"), folder=tmp_path)
    assert 0 < found["time"]["figures"]["seconds"]["estimate"] < 10


def test_every_report_has_the_same_total(interpreter: Interpreter, tmp_path: Path) -> None:
    profile = record(interpreter, tmp_path, PROGRAM, "--every", "16K")
    folded = [
        " ".join(report(name, profile, folder=tmp_path).ok().out.split()) for name in ("summary", "explain")
    ]
    totals = [re.findall(r"([\d.]+ [KMG]iB \([^)]+\)) allocated", text)[0] for text in folded]
    assert totals[0] == totals[1]
    explained = json.loads(report("explain", "--json", profile, folder=tmp_path).ok().out)
    assert explained["bytes"] == summary(profile, "--domain", "all")["all"]["bytes"]
