"""``nthbyte run --keep``: a profile in several files, of which old parts are dropped, on real interpreters."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from harness import Interpreter, cpythons, report

# Memory that lives as long as the program, and work that repeats until there are so many files.
PROGRAM = """
import os, sys, time
kept = []
def early():
    kept.append([bytearray(20_000) for _ in range(200)])
def work():
    return [bytearray(3_000) for _ in range(400)]
def late():
    kept.append([bytearray(20_000) for _ in range(100)])
early()
folder, wanted = sys.argv[1], int(sys.argv[2])
for step in range(100_000):
    work()
    # One file less than there were numbers: the first ones may be gone.
    numbers = [int(name[:6]) for name in os.listdir(folder) if name[0] != "."] if os.path.isdir(folder) else [0]
    if max(numbers, default=0) >= wanted:
        break
    time.sleep(0.01)
late()
if len(sys.argv) > 3:
    time.sleep(1.5)
    os.kill(os.getpid(), 9)
"""


def _json(*words: str | Path) -> Any:
    return json.loads(report(*words, "--json", folder=Path("/")).ok().out)


def _bytes(found: Any) -> dict[str, float]:
    return {row["name"]: row["self_bytes"]["estimate"] for row in found["rows"]}


def _record(
    interpreter: Interpreter, folder: Path, *words: str, keep: str, every: str = "4KiB", status: int = 0
) -> Path:
    (folder / "app.py").write_text(PROGRAM)
    options = ["run", "-q", f"--every={every}", "--seed=1", f"--keep={keep}", "-o", "app.nthb", "app.py"]
    done = interpreter.nthbyte(*options, "app.kept", *words, folder=folder)
    assert done.status == status, done.err
    return folder / "app.nthb"


@pytest.mark.launcher
def test_old_parts_are_dropped_and_what_is_alive_stays(interpreter: Interpreter, tmp_path: Path) -> None:
    profile = _record(interpreter, tmp_path, "7", keep="4s")
    whole = _json("summary", profile)
    files = sorted((tmp_path / "app.kept").glob("*.nthb"))
    assert len(files) >= 6
    assert len(whole["processes"]) == 1 and whole["complete"] and not whole["damage"] and not whole["lost"]
    # All that was dropped is in the sums.
    dropped = whole["dropped"]
    assert dropped["since_nanos"] == 0
    # With the function of its list, where that has one of its own: `<listcomp>` on PyPy.
    names = ("work", "<listcomp>")
    work = sum(one["bytes"] for one in dropped["functions"] if one["name"].startswith(names))
    assert work > 0.5 * dropped["all"]["bytes"]
    text = report("summary", profile, folder=Path("/")).ok().out
    assert "only sums are kept" in text and "was dropped (--keep)" in " ".join(text.split())
    # The same by the folder, and what was allocated since a moment.
    assert _json("summary", tmp_path)["samples"] == whole["samples"]
    since = dropped["until_nanos"] // 1000
    recent = _json("summary", profile, f"--since={since}us")
    assert 0 < recent["samples"] <= whole["samples"]
    if interpreter.is_pypy:
        return
    # What the program has taken at its start, long before the kept parts, is alive at the end.
    tree = report("export", "--to=collapsed", "--at=end", "-o-", profile, folder=Path("/")).ok().out
    sums: dict[str, int] = {}
    for line in tree.splitlines():
        stack, _, number = line.rpartition(" ")
        for name in ("early", "late", "work"):
            if f"{name} (" in stack:
                sums[name] = sums.get(name, 0) + int(number)
    # 4,000,000 and 2,000,000 bytes at a period of 4 KiB: six standard deviations are less than a fifth.
    assert sums["early"] == pytest.approx(4e6, rel=0.2)
    assert sums["late"] == pytest.approx(2e6, rel=0.2)
    # Each file alone has it, too; files of sums only have none.
    alone = (
        report("export", "--to=collapsed", "--at=end", "-o-", "--alone", files[-1], folder=Path("/")).ok().out
    )
    assert "early (" in alone


@pytest.mark.launcher
def test_files_have_a_bound_together(interpreter: Interpreter, tmp_path: Path) -> None:
    profile = _record(interpreter, tmp_path, "11", keep="1MiB", every="1KiB")
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "app.kept").iterdir()}
    # Of the file that grows, up to an eighth and what came in half a second more is beside them.
    assert sum(sizes.values()) <= 1 << 20, sizes
    assert report("explain", profile, folder=Path("/")).status == 0


def test_a_killed_program_has_its_last_files(tmp_path: Path) -> None:
    interpreter = cpythons()[-1]
    profile = _record(interpreter, tmp_path, "3", "kill", keep="4s", status=-signal.SIGKILL)
    found = _json("summary", profile)
    assert not found["complete"] and len(found["processes"]) == 1
    assert _bytes(found)["late"] == pytest.approx(2e6, rel=0.2)


FORKS = """
import os, sys, time
def child():
    for step in range(100_000):
        [bytearray(3_000) for _ in range(400)]
        folder = f"app.{os.getpid()}.kept"
        if os.path.isdir(folder) and len(os.listdir(folder)) > 4:
            break
        time.sleep(0.01)
children = []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        child()
        sys.exit()
    children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
"""


def test_forked_children_have_files_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(FORKS)
    options = ["run", "-q", "--every=1KiB", "--seed=1", "--keep=1h,2MiB", "-o", "app.nthb", "app.py"]
    cpythons()[-1].nthbyte(*options, folder=tmp_path).ok()
    found = _json("summary", tmp_path / "app.nthb")
    assert len(found["processes"]) == 3 and found["complete"]
    children = [path for path in tmp_path.glob("app.*.kept")]
    assert len(children) == 2
    assert _json("summary", tmp_path)["samples"] == found["samples"]
