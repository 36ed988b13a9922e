"""Snapshots of who holds what on PyPy: names and amounts, and that the program does not notice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import Interpreter, report
from held import Snapshot, of_service, snapshots

# The least and the most that each holds, in KiB: its texts, and what lies around them. Drawn objects say it to a tenth.
HELD = {
    ".registry.entries": (625, 1300),
    ".render": (470, 900),
    "Bus.handlers['order']": (625, 1300),
    ".log.handlers[0].records": (310, 1500),
    ".errors": (470, 1500),
    ".head.next": (470, 1300),
    ".names": (470, 900),
    ".generator local buffer": (470, 800),
    ".config.rows": (470, 800),
    "thread call local scratch": (470, 800),
    ".inline.values": (470, 800),
    ".split.values": (470, 800),
    ".combined.values": (470, 800),
    ".slots.values": (470, 800),
    ".strong": (470, 800),
    ".local.buffer": (470, 800),
}


@pytest.mark.each
def test_each_holder_has_its_name_and_its_amount(pypy: Interpreter, tmp_path: Path) -> None:
    found = of_service(pypy, tmp_path, HELD)
    shared = [found.path(node) for node in found.others]
    assert any(path.startswith((".by_key", ".recent")) for path in shared), shared
    shown = json.loads(report("holders", "--json", "a.nthb", folder=tmp_path).ok().out)
    rows = {row["holder"]: row["what"] for row in shown["holders"]}
    assert rows["registry.entries"] == "dict of 400 Session"
    assert rows["errors"] == "list of 300 ValueError"


# Most objects of `before` die, and `after`'s take their places.
ALLOCATED = """
import gc, nthbyte

def before():
    return [[str(i)] for i in range(100_000)]

def after():
    return [[str(i)] for i in range(100_000)]

def other():
    return {i: ["%09d" % i] for i in range(50_000)}

first = before()
gc.collect()
places = {id(one) for one in first}
first = first[:50_000:10]
gc.collect()
second, kept = after(), other()
# Young objects move here. What lives is marked, and some time later the rest is freed.
gc.collect()
print(sum(id(one) in places for one in second) > 1000)
del places
print(nthbyte.snapshot(force=True))
"""


@pytest.mark.each
def test_it_says_who_allocated_what_a_holder_has(pypy: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(ALLOCATED)
    options = ("run", "-q", "--every", "8KiB", "--no-holders", "-o", "a.nthb")
    done = pypy.nthbyte(*options, "app.py", folder=tmp_path).ok()
    assert done.out == "True\nNone\n"
    (found,) = snapshots(tmp_path / "a.nthb")
    assert found.recorded > 200
    shown = json.loads(report("holders", "--json", "a.nthb", folder=tmp_path).ok().out)
    by = {row["holder"]: row["allocated_by"] for row in shown["holders"]}
    for holder, function in (("second", "after"), ("kept", "other")):
        place, samples = by[holder]
        assert place.split(" ")[0] == function and samples > 30, by
    # No dead object's sample is taken for the sample of the object in its place.
    assert sum(of[1] for of in by.values() if of) >= 0.9 * found.recorded, by
    refused = report("holders", "--by", "thread", "a.nthb", folder=tmp_path)
    assert refused.status == 1 and "on PyPy it knows samples of old, small objects only" in refused.err


def test_it_is_taken_at_the_end_if_that_is_wanted_and_keys_are_left_out(
    pypy: Interpreter, tmp_path: Path
) -> None:
    program = "kept = {'secret': ['%9d' % i for i in range(50_000)]}"
    for options, is_there in (((), True), (("--no-names",), False)):
        pypy.nthbyte("run", "--holders", *options, "-f", "-o", "a.nthb", "-c", program, folder=tmp_path).ok()
        (found,) = snapshots(tmp_path / "a.nthb")
        assert (found.reason, found.outcome, found.why) == ("0", "complete", "")
        names = {node[4] for node in found.nodes}
        assert "kept" in names and ("'secret'" in names) == is_there


# Keeps a little more each time, and lives until its input ends.
GROWS = """
import os, select, signal, sys
before = signal.getsignal(64)
kept = []
while not select.select([sys.stdin], [], [], 0.01)[0]:
    if "asks" in sys.argv and len(kept) > 50:
        os.kill(os.getpid(), signal.SIGUSR2)
    if len(kept) < 500:
        kept.append(["%09d" % i * 50 for i in range(100)])
print(int(before), before == signal.getsignal(64), 32 in signal.valid_signals())
"""


@pytest.mark.each
@pytest.mark.parametrize(
    ("reason", "options", "argument"),
    [("4", ("--snapshot", "1s"), ""), ("1", (), ""), ("3", ("--snapshot", "USR2"), "asks")],
    ids=["interval", "peak", "signal"],
)
def test_they_are_taken_at_intervals_at_peaks_and_at_signals(
    pypy: Interpreter, tmp_path: Path, reason: str, options: tuple[str, ...], argument: str
) -> None:
    (tmp_path / "grows.py").write_text(GROWS)

    def of_that_reason() -> list[Snapshot]:
        if not (tmp_path / "a.nthb").exists():
            return []
        found = [one for one in snapshots(tmp_path / "a.nthb") if one.reason == reason]
        # On a slow machine one takes longer than a second.
        return [one for one in found if one.why != "the one before is not finished"]

    done = pypy.nthbyte(
        *("run", "-q", "--holders", *options, "-o", "a.nthb", "grows.py", argument),
        folder=tmp_path,
        until=lambda: len(of_that_reason()) >= 2,
    ).ok()
    assert done.out == "0 True False\n"
    found = of_that_reason()
    assert {one.why or one.outcome for one in found} == {"complete"}
    # The list has its name each time, and each element of it has 45 KiB.
    assert all(one.amounts().get(".kept", 0) > 40 for one in found)


# Signals come all the time, and then one in the middle of a snapshot.
HANDLES = """
import os, signal, time, nthbyte
from nthbyte._agent import load
own, handled = os.getpid(), []

def handler(number, frame):
    handled.append(number)
    if os.getpid() != own:
        open("ran-in-a-copy", "w").close()

def look():
    while (why := nthbyte.snapshot(force=True)) == "the one before is not finished":
        time.sleep(0.01)
    assert why is None, why

signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.00003, 0.00003)
look()
look()
signal.setitimer(signal.ITIMER_REAL, 0)

signal.signal(signal.SIGUSR1, handler)
library, within = load()._library, []
own_snapshot = library.snapshot

def snapshot(*arguments):
    os.kill(own, signal.SIGUSR1)
    within.append(signal.SIGUSR1 in handled)
    return own_snapshot(*arguments)

library.snapshot = snapshot
look()
print(signal.SIGALRM in handled, within[0], signal.SIGUSR1 in handled)
"""


def test_handlers_of_signals_run_in_the_program_and_not_in_a_copy(pypy: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "handles.py").write_text(HANDLES)
    done = pypy.nthbyte("run", "-q", "--no-holders", "-o", "a.nthb", "handles.py", folder=tmp_path).ok()
    assert done.out == "True False True\n"
    assert not (tmp_path / "ran-in-a-copy").exists()
    found = [one.why or one.outcome for one in snapshots(tmp_path / "a.nthb")]
    assert [why for why in found if "not finished" not in why] == 3 * ["complete"]
