"""Code objects and types that are freed leave no name behind for those that get their addresses."""

from __future__ import annotations

from pathlib import Path

from harness import Interpreter, summary

# Each function and each type is freed before the next one is made, which gets its address. Prints how many different
# addresses there were.
PROGRAM = """
import gc
ROUNDS = 200
codes, types = set(), set()
kept = []

def one(number):
    space = {}
    exec(compile(f"def function_{number}(): return bytearray(100_000)", "made", "exec"), space)
    function = space[f"function_{number}"]
    kept.append(function())
    codes.add(id(function.__code__))

def another(number):
    made = type(f"Type{number}", (), {"__slots__": [f"a{at}" for at in range(50)]})
    kept.append(len([made() for _ in range(100)]))
    types.add(id(made))

for number in range(ROUNDS):
    one(number)
    gc.collect()
for number in range(ROUNDS):
    another(number)
    gc.collect()
print(len(codes), len(types))
"""


def test_an_address_that_is_used_again_has_another_name(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    done = cpython.nthbyte("run", "-q", "--every", "1", "-o", "out.nthb", "app.py", folder=tmp_path).ok()
    codes, types = map(int, done.out.split())
    # Otherwise the program tests nothing.
    assert codes < 100 and types < 100, done.out
    functions = _names(tmp_path / "out.nthb", "function")
    missing = [number for number in range(200) if f"function_{number}" not in functions]
    assert missing == []
    classes = _names(tmp_path / "out.nthb", "type")
    missing = [number for number in range(200) if f"Type{number}" not in classes]
    assert missing == []


def _names(profile: Path, by: str) -> set[str]:
    rows = summary(profile, "--by", by, "--top", "100000")["rows"]
    return {row["name"].rpartition(".")[2].rpartition(" ")[2] for row in rows}
