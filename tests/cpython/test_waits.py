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

# Limits do not hold for root.
NO_THREADS = """
import os, resource, sys
pid = os.fork()
if pid == 0:
    if os.getuid() == 0:
        os.setuid(65534)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    keep = [str(n) for n in range(200_000)]
    sys.exit(len(keep) != 200_000)
print(pid, os.waitpid(pid, 0)[1])
"""


@pytest.mark.slow
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
    # The writer thread starts with the first sample: before the limit, or not at all, so that most samples are lost.
    assert child["samples"] + child["lost"] > 200_000, json.dumps(child)
