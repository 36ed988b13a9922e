"""A Rust program that links nthbyte: the example of ``crates/global-alloc``, in reports and exports."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness import Done, Interpreter, example, report, rows_so_far, run, summary

DOMAIN = ("--domain", "native")

# The text of the example, and what it asks for in a round.
WORDS = "one in every n allocated bytes is sampled with the stack of its thread".split() * 200
COPIED = 24 * len(WORDS) + sum(map(len, WORDS))
BORROWED = 16 * len(WORDS)


@pytest.fixture(scope="session")
def words() -> Path:
    """The example, built with debug information."""
    if shutil.which("cargo") is None:
        pytest.skip("there is no cargo")
    return example("words")


def _record(program: Path, folder: Path, every: str, rounds: int, **variables: str) -> Done:
    environment = {"NTHBYTE_OUTPUT": "out.nthb", "NTHBYTE_EVERY": every, **variables}
    return run([str(program), str(rounds)], folder, environment=environment)


def _rows(profile: Path, *options: str) -> dict[str, Any]:
    return {row["name"]: row for row in summary(profile, *DOMAIN, "--top", "1000", *options)["rows"]}


def test_functions_have_their_bytes(words: Path, tmp_path: Path) -> None:
    profile = tmp_path / "out.nthb"
    done = _record(words, tmp_path, "1", 20).ok()
    assert done.out.endswith(f" samples in {profile}\n")
    whole = summary(profile, *DOMAIN)
    assert whole["complete"]
    assert whole["interpreter"].startswith("glibc ")
    rows = _rows(profile)
    for name, size in (("words::copied", COPIED), ("words::borrowed", BORROWED)):
        exact, found = 20 * size, rows[name]["total_bytes"]["estimate"]
        # The thread waits for the writer thread for a bounded time; on a busy machine samples are lost, and counted.
        assert exact - whole["lost"] * size <= found <= exact, name
        assert whole["lost"] or rows[name]["alive"]["estimate"] == 0
    # Nothing of nthbyte or of the way to the allocator is in the stacks.
    own = ("nthbyte", "__rust_alloc", "__rust_realloc", "__rdl_", "__rg_")
    assert not [name for name in rows if any(word in name for word in own)]
    kinds = {row["name"] for row in summary(profile, *DOMAIN, "--by", "type")["rows"]}
    assert "alloc" in kinds
    assert kinds <= {"alloc", "alloc_zeroed", "realloc"}


def test_estimates_contain_the_truth(words: Path, tmp_path: Path) -> None:
    profile = tmp_path / "out.nthb"
    _record(words, tmp_path, "16K", 200, NTHBYTE_SEED="7").ok()
    rows = _rows(profile)
    lost = summary(profile, *DOMAIN)["lost"]
    for name, size in (("words::copied", COPIED), ("words::borrowed", BORROWED)):
        estimate, low, high = (rows[name]["total_bytes"][which] for which in ("estimate", "low", "high"))
        # Six standard deviations.
        assert estimate - 3 * (estimate - low) <= 200 * size, name
        assert lost or 200 * size <= estimate + 3 * (high - estimate), name
    # A second session keeps the first one's profile.
    _record(words, tmp_path, "16K", 1, NTHBYTE_SEED="7").ok()
    assert (tmp_path / "out-2.nthb").exists()


def test_reports_and_exports(words: Path, tmp_path: Path) -> None:
    _record(words, tmp_path, "auto", 200).ok()
    for export in ("firefox", "pprof", "speedscope", "collapsed"):
        report("export", "out.nthb", "--to", export, "-f", "-o", f"out.{export}", folder=tmp_path).ok()
    for command in ("summary", "tree", "memory", "leaks", "explain", "flamegraph"):
        text = report(command, "out.nthb", folder=tmp_path).ok().out
        assert "Python" not in text and "survived" not in text, command


def test_a_signal_completes_the_profile(words: Path, tmp_path: Path) -> None:
    profile = tmp_path / "out.nthb"
    variables = {**os.environ, "NTHBYTE_OUTPUT": str(profile), "NTHBYTE_EVERY": "64K"}
    with subprocess.Popen([words, str(10**12)], cwd=tmp_path, env=variables) as process:
        while "words::copied" not in rows_so_far(profile, *DOMAIN):
            assert process.poll() is None
            time.sleep(0.02)
        process.terminate()
    assert process.returncode == -signal.SIGTERM
    assert summary(profile, *DOMAIN)["complete"]


def test_one_of_the_two_samples(words: Path, tmp_path: Path) -> None:
    """The program says that it is recorded already."""
    done = Interpreter(sys.executable).nthbyte("run", "-o", "run.nthb", "--", words, folder=tmp_path)
    assert done.status == 1
    assert "leave out nthbyte run, or this session" in done.err
    assert not (tmp_path / "words.nthb").exists()


def test_wrong_variables(words: Path, tmp_path: Path) -> None:
    done = _record(words, tmp_path, "often", 1)
    assert (done.status, done.out) == (1, "")
    assert "NTHBYTE_EVERY=often is no size" in done.err
    assert not (tmp_path / "out.nthb").exists()
