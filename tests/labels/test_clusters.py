"""The labels of tasks of Ray and Spark: known bytes by task, in the processes that these start."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

import harness
from formats.installed import missing
from harness import report, run

PACKAGES = harness.REPOSITORY / "build" / "clusters" / "packages"
SIZE = 4_000_000

pytestmark = pytest.mark.slow

# Workers are killed when their driver ends, and a profile lacks its last second then: so that end waits for the test.
PROGRAM = """
import asyncio, os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
kept = [None]
def make():
    # Large enough to be sampled without exception.
    kept[0] = [None] * (SIZE // 8)
"""

RAY = """
import ray
hook = "nthbyte.integrations.ray.label"
ray.init(num_cpus=2, include_dashboard=False, runtime_env={"worker_process_setup_hook": hook})

@ray.remote
def square(number):
    make()
    return number * number

@ray.remote(num_returns="streaming")
def items(count):
    for number in range(count):
        make(); yield number

@ray.remote
class Counter:
    def __init__(self):
        make()
    def add(self, number):
        make()

@ray.remote
class Waiter:
    async def wait(self):
        make(); await asyncio.sleep(0.01); make()
    async def stream(self, count):
        for number in range(count):
            await asyncio.sleep(0.01)
            make(); yield number

assert ray.get([square.remote(number) for number in range(10)]) == [number * number for number in range(10)]
assert ray.get(square.options(name="of its own").remote(3)) == 9
assert [ray.get(item) for item in items.remote(4)] == [0, 1, 2, 3]
counter, waiter = Counter.remote(), Waiter.remote()
ray.get([counter.add.remote(number) for number in range(5)])
ray.get([waiter.wait.remote() for number in range(6)])
assert [ray.get(item) for item in waiter.stream.options(num_returns="streaming").remote(3)] == [0, 1, 2]
sys.stdin.read()
"""

OF_RAY = {
    "square": 10,
    "of its own": 1,
    "items": 4,
    "Counter.__init__": 1,
    "Counter.add": 5,
    "Waiter.wait": 12,
    "Waiter.stream": 3,
}

SPARK = """
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
session = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.python.daemon.module", "nthbyte.integrations.spark").getOrCreate()
)
context = session.sparkContext
def one(number):
    make()
    return number
context.setJobDescription("nightly")
assert context.parallelize(range(6), 3).map(one).sum() == 15
context.setJobDescription(None)
assert context.parallelize(range(4), 2).map(one).collect() == [0, 1, 2, 3]
context.setJobDescription("by udf")
assert len(session.range(5).select(udf(one, "long")("id")).collect()) == 5
sys.stdin.read()
session.stop()
"""

OF_SPARK = {"nightly": 6, "collect": 4, "by udf": 5}

PROGRAMS = {"ray": (RAY, OF_RAY), "spark": (SPARK, OF_SPARK)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_task_has_its_name(name: str, tmp_path: Path) -> None:
    if not (PACKAGES / name.replace("spark", "pyspark")).exists():
        missing("Ray and Spark are missing: make build/clusters/ready")
    if name == "spark" and not shutil.which("java"):
        missing("Spark needs Java")
    body, expected = PROGRAMS[name]
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("SIZE", str(SIZE)) + body)
    profile = tmp_path / "p.nthb"
    words = [sys.executable, "-m", "nthbyte", "run", "--every", "64KiB", "--no-native", "-o", str(profile)]
    found: Counter[str] = Counter()

    def is_complete() -> bool:
        found.clear()
        if profile.exists():
            found.update(made(profile))
        return found == expected

    environment = {"PYTHONPATH": f"{harness.SITE}:{PACKAGES}", "PATH": os.environ["PATH"]}
    run([*words, str(program)], tmp_path, until=is_complete, timeout=600, environment=environment).ok()
    assert found == expected


def made(profile: Path) -> Counter[str]:
    """How many of its objects a program's tasks have made, in all of its processes so far."""
    options = ("--json", "--domain", "python")
    by_task = report("summary", profile, *options, "--by", "label:task", folder=profile.parent)
    found: Counter[str] = Counter()
    for task in json.loads(by_task.out)["rows"] if by_task.status == 0 else ():
        asked = f"task={task['name']}"
        rows = report("summary", profile, *options, "--label", asked, folder=profile.parent)
        # A line of the program, as Spark names it, has a folder in it that is not known.
        name = task["name"].partition(" at ")[0]
        for row in json.loads(rows.out)["rows"] if rows.status == 0 else ():
            if row["name"] == "make" and name != "[no label]":
                found[name] += round(row["self_bytes"]["estimate"] / SIZE)
    return +found
