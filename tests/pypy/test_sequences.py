"""The paper's section 3.7 on real PyPys: random sequences of allocating, dropping, collecting, pinning,
switching sampling on and off.

The tests of the Rust crate know all allocations, and check each sample. Here the interpreter allocates
for itself too. But its collector's count of bytes is exact, and in fixed mode there must be exactly one
sample point for each whole period of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import harness
from harness import Interpreter

KINDS = st.sampled_from(["bytes", "text", "list", "floats", "bytearray", "instance"])
SMALL = st.tuples(st.just("make"), KINDS, st.integers(8, 5000), st.integers(1, 200), st.booleans())
LARGE = st.tuples(st.just("make"), KINDS, st.integers(100_000, 3_000_000), st.integers(1, 3), st.booleans())
PERIODS = st.sampled_from([64, 100, 1000, 4096, 32_768, 300_000, 1 << 20, 16 << 20])
ACTIONS = st.lists(
    SMALL
    | LARGE
    | st.tuples(st.just("drop"))
    | st.tuples(st.just("collect"))
    | st.tuples(st.just("pin"))
    | st.tuples(st.just("start"), PERIODS, st.booleans())
    | st.tuples(st.just("stop")),
    max_size=12,
)


class Driver:
    """A PyPy that executes actions."""

    def __init__(self, interpreter: Interpreter, folder: Path, *flags: str):
        script = Path(__file__).with_name("driver.py")
        self._process = subprocess.Popen(
            interpreter.words([*flags, str(script)], folder),
            cwd=folder,
            env={
                "PYTHONPATH": str(harness.SITE),
                "PYTHONDONTWRITEBYTECODE": "1",
                "PATH": os.environ["PATH"],
                "PYPY_GC_NURSERY": "1M",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def act(self, actions: list[Any], folder: str) -> Any:
        """Sends actions, and returns the answer."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps({"actions": actions, "folder": folder}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"PyPy ended with status {self._process.wait()} on {actions}"
        return json.loads(answer)

    def close(self) -> None:
        """Ends it."""
        self._process.communicate(timeout=1200)
        assert self._process.returncode == 0


@pytest.fixture(scope="session", params=["jit", "no jit"])
def driver(request: Any, pypy: Interpreter, tmp_path_factory: Any) -> Iterator[Driver]:
    flags = ["--jit", "off"] if request.param == "no jit" else []
    one = Driver(pypy, tmp_path_factory.mktemp("driver"), *flags)
    yield one
    one.close()


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(actions=ACTIONS)
def test_random_sequences(driver: Driver, actions: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        answer = driver.act(actions, folder)
        assert answer["restored"], "the interpreter's code is not as it was"
        for session in answer["sessions"]:
            _check(session)


def _check(session: Any) -> None:
    assert session["bytes"] >= session["known"]
    # What the interpreter allocates for itself: the start and stop of the session, and a little for each object. A
    # bytearray is made of up to two copies, of which one has room to grow by an eighth.
    assert session["bytes"] <= session["known"] * 3.3 + 4_000_000 + session["actions"] * 2000
    summary = harness.summary(Path(session["path"]))
    assert (summary["samples"], summary["lost"]) == (session["samples"], session["lost"])
    assert summary["complete"]
    assert not summary["damage"]
    assert summary["bytes_allocated"] == session["bytes"]
    if session["fixed"] and not session["lost"]:
        # In fixed mode each sample point stands for a period of bytes.
        points = summary["all"]["bytes"]["estimate"] / session["period"]
        assert round(points) == session["bytes"] // session["period"]
