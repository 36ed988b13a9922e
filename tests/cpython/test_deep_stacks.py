"""Stacks of which only the inner end changes are walked only there: they must be right all the same."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from harness import Interpreter, report

# Calls and returns at random, and counts the stacks in which it makes an object. A generator's frame is not where the
# others are.
PROGRAM = """
import collections, json, random, sys

sys.setrecursionlimit(100_000)
source = "".join(
    f"def step{n}(depth):\\n    return run(depth + 1)\\ndef make{n}(depth):\\n    yield run(depth + 1)\\n"
    for n in range(9)
)
exec(compile(source, "steps.py", "exec"))
choose = random.Random(int(sys.argv[1]))
left = int(sys.argv[2])
slot, path, truth = [None], ["<module>", "run"], collections.Counter()


def mark():
    slot[0] = object()


def run(depth):
    global left
    while left > 0:
        chance = choose.random()
        if chance < 0.2:
            left -= 1
            mark()
            truth[";".join(path)] += 1
        elif chance < 0.62 or depth < 200:
            n, makes = choose.randrange(9), choose.random() < 0.02
            path.extend((f"make{n}" if makes else f"step{n}", "run"))
            if makes:
                next(globals()[f"make{n}"](depth))
            else:
                globals()[f"step{n}"](depth)
            del path[-2:]
        else:
            return


run(0)
with open("truth.json", "w") as file:
    json.dump(truth, file)
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_each_object_has_the_stack_that_made_it(seed: int, cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    words = ["run", "-q", "--every", "1", "--no-native", "-o", "out.nthb", "app.py", str(seed), "200"]
    cpython.nthbyte(*words, folder=tmp_path).ok()
    report("export", "--to", "collapsed", "-f", "-o", "out.txt", "out.nthb", folder=tmp_path).ok()
    found: Counter[str] = Counter()
    with open(tmp_path / "out.txt") as file:
        for line in file:
            stack, _, size = line.rpartition(" ")
            *outside, last = (frame.partition(" (")[0] for frame in stack.split(";"))
            if last == "mark":
                found[";".join(outside)] += int(size)
    truth = json.loads((tmp_path / "truth.json").read_text())
    assert max(stack.count(";") for stack in truth) > 400
    size = 32 if cpython.is_free_threaded else 16
    assert found == {stack: size * count for stack, count in truth.items()}
