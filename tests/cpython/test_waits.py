"""Every wait with the GIL held has a time limit: then samples are lost, and the program continues."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest

from harness import Interpreter, summary

# More samples than the ring and a pipe hold together; then forks, with children that record too.
FORKS = """
import os
keep = [str(n) for n in range(200_000)]
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        more = [str(n) for n in range(2_000)]
        raise SystemExit
    assert os.waitpid(pid, 0)[1] == 0
print(len(keep))
"""

# Limits do not hold for root. A user of its own may have two threads: the first child, without its writer thread, which
# does not run during a fork; and the child of that one.
NO_THREADS = """
import os, resource, sys
pid = os.fork()
if pid == 0:
    os.setuid(100_000 + os.getpid())
    resource.setrlimit(resource.RLIMIT_NPROC, (2, 2))
    while True:
        try:
            last = os.fork()
            break
        except BlockingIOError:
            pass  # the kernel still counts the writer thread
    if last == 0:
        keep = [str(n) for n in range(200_000)]
        os._exit(len(keep) != 200_000)
    print(f"{os.getpid()}.{last}", os.waitpid(last, 0)[1], flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""


def test_a_pipe_that_nobody_reads(cpython: Interpreter, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.nthb"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        done = cpython.nthbyte("run", "--every", "1", "-o", pipe, "-c", FORKS, folder=tmp_path).ok()
    finally:
        os.close(reader)
    assert done.out.strip() == "200000"
    assert "the profile is not whole" in done.err
    children = [path for path in tmp_path.glob("*.nthb") if path != pipe]
    assert len(children) == 3
    assert all(summary(child)["samples"] > 1_000 for child in children)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, for a user without other threads")
def test_a_child_that_cannot_start_a_thread(cpython: Interpreter) -> None:
    # Not in pytest's folder, which other users cannot enter.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        done = cpython.nthbyte(
            "run", "-q", "--every", "1", "-o", "out.nthb", "-c", NO_THREADS, folder=folder
        ).ok()
        pid, status = done.out.split()
        assert status == "0"
        child = summary(folder / f"out.{pid}.nthb")
    assert child["complete"]
    assert child["lost"] > 1_000, json.dumps(child)
