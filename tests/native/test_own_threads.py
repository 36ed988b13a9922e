"""What a library does in threads of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness import Interpreter, is_near, summary

PROGRAM = """
import ctypes, os, time
pool = ctypes.CDLL(os.path.abspath("libpool.so"))
def waits(): pool.work()
def sleeps():
    pool.begin()
    time.sleep(2)
    pool.end()
waits()
sleeps()
"""


def test_it_is_below_the_call_that_waits_for_it(cpython: Interpreter, tmp_path: Path) -> None:
    """Elsewhere it has the library's name: while Python sleeps, no call of the library waits."""
    source = Path(__file__).parent / "programs" / "pool.c"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", "libpool.so", source, "-lpthread"], cwd=tmp_path, check=True
    )
    (tmp_path / "app.py").write_text(PROGRAM)
    cpython.nthbyte("run", "-q", "--every", "64K", "-o", "out.nthb", "app.py", folder=tmp_path).ok()
    found = summary(tmp_path / "out.nthb", "--domain", "native")
    rows = {row["name"]: row["total_bytes"] for row in found["rows"]}
    assert is_near(rows["[libpool, its own threads]"], 40_000_000), rows
    assert is_near(rows["waits"], 20_000_000), rows
    assert rows.get("sleeps", {"estimate": 0})["estimate"] < 1_000_000, rows
