"""``Profiler`` and ``start`` in a process that is recorded already: a part of that recording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness import Done, Interpreter, report, summary

# Each allocation is recorded. `inside` keeps what it has made, and it is freed after the part.
PROGRAM = """
import json, os, warnings
import nthbyte
def before(): return [bytearray(1000) for _ in range(50)]
def inside(): return [bytearray(1000) for _ in range(70)]
def after(): return [bytearray(1000) for _ in range(90)]
def shown(result):
    return {name: getattr(result, name) for name in ("path", "samples", "bytes_allocated", "lost", "notes")}
"""

NESTED = """
kept = before()
with nthbyte.Profiler("own.nthb", every="1KiB") as part:
    more = inside()
    kept.clear()
more.clear()
more = after()
nthbyte.start()
with nthbyte.Profiler() as inner:
    inside()
outer = nthbyte.stop()
print(json.dumps([shown(one) for one in (part.result, inner.result, outer)]))
"""

FORKED = """
import sys
with nthbyte.Profiler("own.nthb") as part:
    before()
    child = os.fork()
    if not child:
        inside()
if child:
    os.waitpid(child, 0)
    nested = shown(part.result)
    print(json.dumps(nested))
else:
    json.dump([os.getpid(), shown(part.result)], open("child.json", "w"))
"""

ENDED = """
with nthbyte.Profiler("own.nthb") as part:
    inside()
    whole = nthbyte.stop()
    after()
print(json.dumps([shown(part.result), shown(whole)]))
"""


def recorded(interpreter: Interpreter, code: str, folder: Path) -> Done:
    """Runs the program under nthbyte, which records each allocation."""
    words = ("run", "-q", "--every", "1", "--no-native", "-o", "app.nthb", "-c", PROGRAM + code)
    return interpreter.nthbyte(*words, folder=folder).ok()


def makers(profile: Path) -> dict[str, Any]:
    """What the program's functions have made."""
    rows = summary(profile, "--top", "0")["rows"]
    names = ("before", "inside", "after")
    return {
        name: [row for row in rows if row["name"] == name or row["name"].startswith(f"{name}.")]
        for name in names
    }


def test_a_part_has_its_own_figures_and_file(interpreter: Interpreter, tmp_path: Path) -> None:
    done = recorded(interpreter, NESTED, tmp_path)
    assert not done.err
    part, inner, outer = json.loads(done.out)
    own = summary(tmp_path / "own.nthb")
    assert part["path"] == str(tmp_path / "own.nthb")
    assert inner["path"] == outer["path"] == str(tmp_path / "app.nthb")
    assert part["notes"] == [f"a part of the recording {tmp_path / 'app.nthb'}, with its options"]
    assert own["bytes_allocated"] == part["bytes_allocated"] > 70_000
    # Times are whole microseconds, so a sample at an end may be on either side of it.
    assert abs(own["samples"] - part["samples"]) <= 20
    assert 0 < inner["samples"] < outer["samples"] < summary(tmp_path / "app.nthb")["samples"]
    if not interpreter.is_pypy:
        found = makers(tmp_path / "own.nthb")
        assert found["inside"] and not found["before"] and not found["after"]
        # What was freed later is alive at the end of the part.
        assert sum(row["still_live"]["estimate"] for row in found["inside"]) > 70_000


def test_a_part_in_a_forked_child_is_of_the_child(cpython: Interpreter, tmp_path: Path) -> None:
    parent = json.loads(recorded(cpython, FORKED, tmp_path).out)
    pid, child = json.loads((tmp_path / "child.json").read_text())
    assert parent["path"] == str(tmp_path / "own.nthb")
    assert child["path"] == str(tmp_path / f"own.{pid}.nthb")
    assert child["samples"] > 70
    found = [makers(Path(one["path"])) for one in (parent, child)]
    assert [(bool(made["before"]), bool(made["inside"])) for made in found] == [(True, False), (False, True)]


def test_a_part_ends_with_its_recording(interpreter: Interpreter, tmp_path: Path) -> None:
    part, whole = json.loads(recorded(interpreter, ENDED, tmp_path).out)
    assert (part["path"], whole["path"]) == (str(tmp_path / "own.nthb"), str(tmp_path / "app.nthb"))
    assert 70 < part["samples"] < whole["samples"]
    assert not makers(tmp_path / "own.nthb")["after"]


def test_what_a_part_refuses(interpreter: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "own.nthb").write_text("kept")
    code = """
def refusal(function):
    try:
        function()
    except (ValueError, nthbyte.Error) as error:
        return f"{type(error).__name__}: {error}"
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    with nthbyte.Profiler("own.nthb") as part:
        inside()
print(json.dumps([
    part.result.path,
    [str(one.message) for one in found],
    refusal(lambda: nthbyte.start("missing/own.nthb")),
    refusal(lambda: nthbyte.start(every=3)),
    nthbyte.stop() and refusal(nthbyte.start),
]))
"""
    path, found, missing, wrong, alone = json.loads(recorded(interpreter, code, tmp_path).out)
    assert path == str(tmp_path / "own-2.nthb")
    assert found == [f"{tmp_path / 'own.nthb'} exists: the profile is {path}"]
    assert (tmp_path / "own.nthb").read_text() == "kept"
    assert missing.startswith("Error: ") and "missing" in missing
    assert wrong.startswith("ValueError: ")
    assert alone == "ValueError: name the profile's file: nothing is recorded that this could be a part of"


def test_merge_writes_a_part(cpython: Interpreter, tmp_path: Path) -> None:
    recorded(cpython, "kept = [before() for _ in range(20)]", tmp_path)
    whole = summary(tmp_path / "app.nthb")
    middle = whole["duration_nanos"] // 2000
    parts = []
    for number, option in enumerate((f"--until={middle}us", f"--since={middle}us")):
        path = tmp_path / f"part{number}.nthb"
        report("merge", "app.nthb", "-o", path, option, folder=tmp_path).ok()
        parts.append(summary(path))
    assert sum(part["samples"] for part in parts) == whole["samples"]
    assert sum(part["duration_nanos"] for part in parts) == whole["duration_nanos"]
    assert parts[1]["started_unix_nanos"] == whole["started_unix_nanos"] + middle * 1000
    both = report("merge", "part0.nthb", "part1.nthb", "-o", "x.nthb", "--since=1s", folder=tmp_path)
    assert both.status == 1 and "a part of one process" in both.err


MANY = """
from nthbyte import _part
number = len(os.listdir("/proc/self/fd"))
found = []
for at in range(4):
    kept = before()
    with nthbyte.Profiler(f"{at}.nthb") as part:
        inside()
    kept = after()
    size = os.fstat(_part._checkpoint[1]).st_size if _part._checkpoint else None
    found.append([part.result.bytes_allocated, size])
nthbyte.stop()
print(json.dumps([found, len(os.listdir("/proc/self/fd")) < number]))
"""


def test_each_part_reads_on_where_the_last_one_has_ended(interpreter: Interpreter, tmp_path: Path) -> None:
    found, is_closed = json.loads(recorded(interpreter, MANY, tmp_path).out)
    assert is_closed
    for at, (allocated, size) in enumerate(found):
        assert summary(tmp_path / f"{at}.nthb")["bytes_allocated"] == allocated > 70_000
        if not interpreter.is_pypy:
            assert size > 0
            made = makers(tmp_path / f"{at}.nthb")
            assert made["inside"] and not made["before"] and not made["after"]
