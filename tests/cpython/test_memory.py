"""Where memory runs out, the program continues; samples are lost and counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import Interpreter, summary

# Fails the agent's allocations from each number on, from the first one that the agent makes in this process.
PROGRAM = """
import ctypes, gc, json, os, sys
import nthbyte
import nthbyte._agent as door

# Use the agent that was built with extra functions for tests.
library, how_many = sys.argv[1], int(sys.argv[2])
door._agent = door.Agent(library)
fail = ctypes.PyDLL(library).fail_allocations
fail.argtypes, fail.restype = [ctypes.c_uint64, ctypes.c_uint64], ctypes.c_uint64
NEVER = (1 << 64) - 1

def work(turn):
    keep = [[number, str(number), {number: [turn]}] for number in range(100)]
    exec(compile(f"class Class{turn}: pass\\nmade = [Class{turn}() for _ in range(9)]", "made", "exec"), {})
    child = os.fork() if turn % 16 == 0 else -1
    if child == 0:
        keep = [bytes(number) for number in range(300)]
        os._exit(0)
    if child > 0:
        assert os.waitpid(child, 0)[1] == 0
    gc.collect()
    assert [one[0] for one in keep] == list(range(100))

sessions = refused = 0
for turn in range(1_000_000):
    fail(turn, min(turn + how_many, NEVER))
    path = f"{turn}.nthb"
    try:
        nthbyte.start(path, every=64)
    except nthbyte.Error as error:
        fail(NEVER, NEVER)
        assert "memory" in str(error), error
        refused += 1
        continue
    work(turn)
    result = nthbyte.stop()
    made = fail(NEVER, NEVER)
    sessions += 1
    assert result.notes == (), result
    # A session without a shortage takes hundreds of samples: the missing ones were counted.
    assert result.samples + result.lost > 300, result
    if turn % 10:
        os.unlink(path)
    if made < turn:
        break
nthbyte.start("next.nthb", every=64)
work(1)
after = nthbyte.stop()
counts = {"turns": turn, "sessions": sessions, "refused": refused}
print(json.dumps({**counts, "samples": after.samples, "lost": after.lost}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how_many", [1, 1 << 63], ids=["one", "all later ones"])
def test_each_allocation_of_the_agent_fails(
    how_many: int, seams: Path, cpython: Interpreter, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    flags = ("-W", "ignore::DeprecationWarning")
    done = cpython.python(*flags, "app.py", seams, str(how_many), folder=tmp_path).ok()
    found = json.loads(done.out)
    assert found["turns"] > 50 and found["sessions"] > 50, found
    assert found["samples"] > 300 and found["lost"] == 0, found
    for profile in tmp_path.glob("[0-9]*0.nthb"):
        assert summary(profile)["complete"], profile
