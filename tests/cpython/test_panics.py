"""A panic inside nthbyte ends the session, and the program continues."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Interpreter, summary

PROGRAM = """
import ctypes, gc, sys
import nthbyte
import nthbyte._agent as door

# Use the agent that was built with extra functions for tests.
library = sys.argv[1]
door._agent = door.Agent(library)
nthbyte.start("out.nthb", every=64)
blocks = sys.getallocatedblocks()
ctypes.PyDLL(library).panic_after(int(sys.argv[2]))
keep = []
for turn in range(30):
    keep.append([[number, str(number)] for number in range(200)])
    exec(compile(f"class Class{turn}: pass", "made", "exec"), {})
    gc.collect()
assert [len(numbers) for numbers in keep] == [200] * 30
# The heap's blocks are counted still: each list in it has a block, and so has each of most strings.
assert sys.getallocatedblocks() - blocks > 10_000, (sys.getallocatedblocks(), blocks)
first = nthbyte.stop()
# The next session works normally.
nthbyte.start("next.nthb", every=64)
keep = [bytes(number) for number in range(2000)]
second = nthbyte.stop()
print(first.notes, second.notes, second.samples > 100)
"""


@pytest.mark.parametrize("calls", [1, 2, 3, 10, 100, 1000])
def test_a_panic_ends_only_the_session(calls: int, seams: Path, cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    done = cpython.python("app.py", seams, str(calls), folder=tmp_path).ok()
    assert done.out == "('an error inside nthbyte ended the sampling early',) () True\n"
    assert summary(tmp_path / "out.nthb")["complete"]
    assert summary(tmp_path / "next.nthb")["complete"]
