"""A session survives that its library is replaced or removed, as an upgrade under a running program does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness import SITE, Interpreter, samples

# Replaces or removes the library, then allocates while blocks are written.
PROGRAM = """
import os, sys, time
import nthbyte

path = os.path.join(os.path.dirname(nthbyte.__file__), "libnthbyte_cpython.so")
if sys.argv[1] == "replaced":
    with open(path + ".new", "wb") as file:
        file.write(b"not a library")
    os.replace(path + ".new", path)
else:
    os.unlink(path)
kept = []
for turn in range(10):
    kept.append([[] for _ in range(5_000)])
    time.sleep(0.1)
print("ended")
"""


@pytest.mark.parametrize("how", ["replaced", "removed"])
def test_the_program_goes_on(cpython: Interpreter, how: str, tmp_path: Path) -> None:
    site = tmp_path / "site"
    shutil.copytree(SITE / "nthbyte", site / "nthbyte")
    (tmp_path / "app.py").write_text(PROGRAM)
    words = ("run", "-q", "--every", "1KiB", "-o", "out.nthb", "app.py", how)
    done = cpython.nthbyte(*words, folder=tmp_path, environment={"PYTHONPATH": str(site)}).ok()
    assert done.out == "ended\n"
    assert samples(tmp_path / "out.nthb") > 1000
