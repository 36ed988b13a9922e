"""What the profile of a process says that was killed near its limit of memory."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

import harness

# Takes memory until nine tenths of its addresses are in use, says so, and works on until its end. The limit is so far
# away that its growth is most of what the process has, and that a snapshot has room.
PROGRAM = """
import resource, sys, time

def addresses():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()

class Cache:
    def __init__(self):
        self.batches = []

CACHE = Cache()

def load_batch():
    for _ in range(20):
        CACHE.batches.append(bytearray(50_000))

limit = addresses() + (256 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
while addresses() < limit * 0.92:
    load_batch()
print("full", flush=True)
end = time.monotonic() + 600
while time.monotonic() < end:
    # As a program does: a snapshot begins where something is allocated.
    work = [str(number) * 100 for number in range(1000)]
    time.sleep(0.01)
"""

LAST_SEEN = (
    r"Last seen at \d\d:\d\d:\d\d UTC, [\d.]+ [MG]iB of [\d.]+ [MG]iB in use \(ulimit -v\): {verdict}; "
    r"(?P<grown>[\d.]+) MiB of it since \d\d:\d\d:\d\d from load_batch \S*app\.py:16"
)
LIMIT = 300


def text(command: str, profile: Path) -> str:
    """Returns a report, with its lines as one."""
    return " ".join(harness.report(command, profile, folder=profile.parent).ok().out.split())


@pytest.mark.launcher
def test_a_process_that_is_killed_near_its_limit(interpreter: harness.Interpreter, tmp_path: Path) -> None:
    if interpreter.is_pypy:
        pytest.skip("PyPy does not say what is alive")
    (tmp_path / "app.py").write_text(PROGRAM)
    words = ["-m", "nthbyte", "run", "--every", "64KiB", "-o", "x.nthb", "app.py"]
    process = subprocess.Popen(
        interpreter.words(words, tmp_path),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(harness.SITE)},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    profile = tmp_path / "x.nthb"
    try:
        assert process.stdout and process.stdout.readline() == b"full\n"
        end = time.monotonic() + LIMIT
        # The last seconds of the file come after the alarm. The snapshot is taken while the program goes on.
        while "held by CACHE.batches" not in text("explain", profile):
            assert process.poll() is None and time.monotonic() < end, text("explain", profile)
            time.sleep(0.2)
        running = text("explain", profile)
        assert re.search(LAST_SEEN.format(verdict="near its limit, and still running"), running), running
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    pattern = LAST_SEEN.format(verdict="probably killed for memory") + r" \(held by CACHE\.batches, list of "
    for command in ("explain", "summary"):
        found = re.search(pattern, text(command, profile))
        assert found, text(command, profile)
        # What was taken in the last seconds before: how much that is depends on how fast the program ran.
        assert 10 < float(found["grown"]) < 350
    [first, *_] = json.loads(harness.report("explain", profile, "--json", folder=tmp_path).ok().out)[
        "answers"
    ]
    assert first["topic"] == "killed"
    assert first["places"][0]["function"] == "load_batch"
    assert first["figures"]["used"]["estimate"] > first["figures"]["limit"]["estimate"] * 0.9
    assert harness.summary(profile)["killed"] == first["sentences"]


@pytest.mark.launcher
def test_a_process_that_is_killed_far_from_a_limit(interpreter: harness.Interpreter, tmp_path: Path) -> None:
    program = "import os, signal, time; kept = [bytearray(1000) for _ in range(3000)]; time.sleep(1)\n"
    (tmp_path / "app.py").write_text(program + "os.kill(os.getpid(), signal.SIGKILL)\n")
    done = interpreter.nthbyte("run", "-o", "x.nthb", "app.py", folder=tmp_path)
    assert done.status == -signal.SIGKILL
    for command in ("explain", "summary"):
        said = text(command, tmp_path / "x.nthb")
        assert "Last seen" not in said
        assert "the program was killed, or is still running" in said
