"""Imported profiles of VMProf and PyPy have the same figures as in VMProf's own reader."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import harness
from formats.installed import missing, vmprof_python

# Two threads, and functions with known shares of the time.
PROGRAM = """
import sys, threading, time

def spin(seconds):
    end = time.process_time() + seconds
    total = 0
    while time.process_time() < end:
        for i in range(1000):
            total += i * i % 7
    return total

def short():
    return spin(0.3)

def long():
    return spin(0.9)

class Worker:
    def run(self):
        return len(sorted(str(spin(0.3))))

def main():
    thread = threading.Thread(target=Worker().run)
    thread.start()
    short()
    long()
    thread.join()
"""

RECORD = """
import sys, program
try:
    import vmprof
    enable, disable = vmprof.enable, vmprof.disable
    options = {word: True for word in sys.argv[2:]}
except ImportError:
    import _vmprof
    words = sys.argv[2:]
    disable = _vmprof.disable
    options = {}
    def enable(fd, period):
        _vmprof.enable(fd, period, int("memory" in words), 0, int("native" in words), 0)
with open(sys.argv[1], "w+b") as out:
    enable(out.fileno(), 0.001, **options)
    program.main()
    disable()
"""

# Prints the figures of VMProf's own reader: the number of samples, and for each function (by name and file) the
# number of samples that have it on the stack.
READ = """
import collections, json, sys, vmprof
from vmprof.reader import AssemblerCode
stats = vmprof.read_profile(sys.argv[1])
functions, total = collections.Counter(), 0
for profile in stats.profiles:
    trace, weight = profile[0], profile[1]
    total += weight
    names = set()
    for at, address in enumerate(trace):
        if (stats.profile_lines and at % 2 == 1) or isinstance(address, AssemblerCode):
            continue
        info = stats.get_addr_info(address)
        if info and info[0] == "py":
            names.add(info[1] + " " + info[3])
    for name in names:
        functions[name] += weight
print(json.dumps([len(stats.profiles), total, functions]))
"""


def record(python: str, folder: Path, *options: str) -> Path:
    """Profiles the program with VMProf."""
    (folder / "program.py").write_text(PROGRAM)
    (folder / "record.py").write_text(RECORD)
    out = folder / "out.prof"
    words = [python, "record.py", str(out), *options]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    if "libunwind" in done.stdout + done.stderr:
        missing("libunwind.so, which VMProf wants for native frames")
    return out


def read(file: Path) -> tuple[int, float, dict[str, float]]:
    """Returns what VMProf's own reader finds."""
    python = vmprof_python("0.6.0")
    done = subprocess.run([python, "-c", READ, str(file)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    count, total, functions = json.loads(done.stdout)
    return count, total, functions


def imported(file: Path, folder: Path) -> Any:
    """Returns an imported profile as speedscope's JSON: stacks and time samples."""
    profile, out = folder / "imported.nthb", folder / "imported.json"
    harness.report("import", "--force", file, "-o", profile, folder=folder).ok()
    harness.report("export", profile, "--to", "speedscope", "-f", "-o", out, folder=folder).ok()
    return json.loads(out.read_text())


def shares(content: Any) -> tuple[int, dict[str, float]]:
    """Returns the number of time samples, and each function's share of them."""
    frames = content["shared"]["frames"]
    total, functions = 0, dict[str, float]()
    for profile in content["profiles"]:
        if profile["name"].endswith(": time"):
            for stack in profile["samples"]:
                total += 1
                for name in {f"{frames[at]['name']} {frames[at].get('file', '')}" for at in stack}:
                    functions[name] = functions.get(name, 0) + 1
    return total, {name: count / total for name, count in functions.items()}


def agree(file: Path, folder: Path) -> None:
    """Checks that both readers find the same functions with the same shares."""
    count, weight, functions = read(file)
    assert count >= 20
    total, found = shares(imported(file, folder))
    assert total == pytest.approx(weight, abs=1)
    for name, theirs in functions.items():
        name = name[:-1] if name.endswith(" -") else name
        assert found[name] == pytest.approx(theirs / weight, abs=0.02), name
    short = next(share for name, share in found.items() if name.startswith("short "))
    long = next(share for name, share in found.items() if name.startswith("long "))
    assert long > short


OPTIONS = [(), ("lines",), ("memory",), ("native",), ("lines", "memory", "native")]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda words: "+".join(words) or "plain")
def test_profiles_of_vmprof_on_cpython(vmprof_of: str, options: tuple[str, ...], tmp_path: Path) -> None:
    file = record(vmprof_of, tmp_path, *options)
    agree(file, tmp_path)
    content = imported(file, tmp_path)
    threads = {profile["name"] for profile in content["profiles"]}
    assert len(threads) == 2, threads


@pytest.mark.parametrize(
    "options", [(), ("memory",), ("native",)], ids=lambda words: "+".join(words) or "plain"
)
def test_profiles_of_pypy(options: tuple[str, ...], tmp_path: Path) -> None:
    pypy = shutil.which("pypy3") or missing("pypy3 is not installed")
    agree(record(pypy, tmp_path, *options), tmp_path)


def test_compressed_and_damaged_files(vmprof_of: str, tmp_path: Path) -> None:
    file = record(vmprof_of, tmp_path)
    plain = imported(file, tmp_path)
    packed = tmp_path / "packed.prof"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert shares(imported(packed, tmp_path)) == shares(plain)
    cut = tmp_path / "cut.prof"
    cut.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    done = harness.report("import", cut, "-o", tmp_path / "cut.nthb", folder=tmp_path).ok()
    assert "truncated" in done.err, done.err
    assert "Traceback" not in done.err
