"""Whatever ends a process in order, its time samples are kept, as its allocations are."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from harness import SPEND, Interpreter, summary

# CPU time of the process that ends, in seconds. It makes no function that dies: a dying one has all ticks recorded.
USED = 0.4
# So much of it is sampled at least, however busy the machine is. An end that loses unwritten samples loses all.
KEPT = 0.5 * USED

PROGRAM = (
    SPEND
    + """
import os, signal, sys, threading

def end():
    {end}

def work():
    spend({used})

work()
end()
"""
)

ENDS = {
    "normal": "pass",
    "sys.exit": "sys.exit(3)",
    "os._exit": "os._exit(4)",
    "SIGTERM to itself": "os.kill(os.getpid(), signal.SIGTERM)",
    "SIGTERM in a thread": "threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGTERM)).start()",
    # The new program may come before the last block of the profile is written.
    "exec": "time.sleep(1.5); os.execv('/bin/true', ['true'])",
}


def seconds(profile: Path, name: str) -> float:
    """The CPU time of a function, by its samples; and what was lost, if it has samples."""
    time = summary(profile)["time"]
    total: int = sum(row["total_samples"] for row in time["rows"] if row["name"] == name)
    return (total + time["lost"]) / time["hz"] if total else 0


@pytest.mark.launcher
@pytest.mark.parametrize("end", ENDS)
def test_an_end_keeps_the_time_samples(end: str, interpreter: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM.format(end=ENDS[end], used=USED))
    plain = interpreter.python("app.py", folder=tmp_path)
    done = interpreter.nthbyte("run", "-q", "--cpu", "-o", "out.nthb", "app.py", folder=tmp_path)
    assert (done.status, done.out, done.err) == (plain.status, plain.out, plain.err)
    assert seconds(tmp_path / "out.nthb", "work") >= KEPT


def test_a_signal_from_outside_keeps_the_time_samples(interpreter: Interpreter, tmp_path: Path) -> None:
    """Also of a program that works when it comes, and of one that waits."""
    wait = "print(os.getpid(), flush=True); sys.stdin.read(1)"
    (tmp_path / "app.py").write_text(PROGRAM.format(end=wait, used=USED))
    outside = """
import os, signal, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
os.kill(int(child.stdout.readline()), signal.SIGTERM)
print(child.wait())
"""
    (tmp_path / "outside.py").write_text(outside)
    words = [interpreter.path, "-m", "nthbyte", "run", "-q", "--cpu", "-o", "out.nthb", "app.py"]
    done = interpreter.python("outside.py", *words, folder=tmp_path).ok()
    assert int(done.out) == -signal.SIGTERM
    assert seconds(tmp_path / "out.nthb", "work") >= KEPT


CHILDREN = (
    SPEND
    + """
import multiprocessing, os, sys

def work(_):
    # A child begins its profile when it allocates.
    kept = [bytes(1000) for _ in range(1000)]
    spend({used})
    return os.getpid()

if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    kind = sys.argv[1]
    if kind == "terminated":
        with multiprocessing.Pool(2) as pool:
            children = pool.map(work, range(2), 1)
    else:
        child = os.fork()
        if child == 0:
            work(0)
            os._exit(0)
        os.waitpid(child, 0)
        children = [child]
    print(*set(children))
"""
)


@pytest.mark.parametrize("kind", ["terminated", "forked"])
def test_children_keep_their_time_samples(kind: str, interpreter: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(CHILDREN.format(used=USED))
    words = ["run", "-q", "--cpu", "--every", "16KiB", "-o", "out.nthb", "app.py", kind]
    children = interpreter.nthbyte(*words, folder=tmp_path).ok().out.split()
    assert children
    for child in children:
        profile = tmp_path / f"out.{child}.nthb"
        assert seconds(profile, "work") >= KEPT, (os.listdir(tmp_path), child)
