"""The probes for tracers of the system: `otel_memory:alloc` and `otel_memory:free`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from harness import SITE, cpythons, report, run

LIBRARIES = ["cpython", "pypy", "native", "program"]

# It waits for the tracer with a signal, which does nothing to it.
PROGRAM = """
import os, signal
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
os.kill(os.getpid(), signal.SIGUSR1)
kept = [None] * 60
def big():
    for at in range(60):
        kept[at] = bytearray(1_000_000)
big()
del kept[20:]
"""

COMMANDS = r"""
set pagination off
set confirm off
handle SIGUSR1 stop print nopass
run
break -probe-stap libnthbyte_cpython.so:otel_memory:alloc
commands
silent
printf "alloc %lu %lu %lu\n", $_probe_arg0, $_probe_arg1, $_probe_arg2
continue
end
break -probe-stap libnthbyte_cpython.so:otel_memory:free
commands
silent
printf "free %lu\n", $_probe_arg0
continue
end
continue
"""


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.skipif(not shutil.which("readelf"), reason="no readelf")
def test_each_agent_has_them(library: str) -> None:
    words = ["readelf", "-n", "-W", str(SITE / "nthbyte" / f"libnthbyte_{library}.so")]
    notes = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    found = re.findall(r"Provider: otel_memory\s+Name: (\w+)\s.*\s+Arguments: (.*)", notes)
    arguments = {name: len(of.split()) for name, of in found}
    assert arguments == {"alloc": 3, "free": 1}


@pytest.mark.skipif(not shutil.which("gdb"), reason="no gdb")
def test_a_tracer_sees_each_sample(tmp_path: Path) -> None:
    """Breakpoints at the probes see what the profile has: as many samples, of the same bytes."""
    (tmp_path / "app.py").write_text(PROGRAM)
    (tmp_path / "commands").write_text(COMMANDS)
    interpreter = next(one for one in cpythons() if one.tree is None)
    # gdb takes no script that starts another program.
    find = "import os, sys; print(os.path.realpath(sys.executable))"
    executable = interpreter.python("-c", find, folder=tmp_path).ok().out.strip()
    words = ["-m", "nthbyte", "run", "-q", "--no-native", "--every=256KiB", "-oout.nthb", "app.py"]
    done = run(["gdb", "-batch", "-nx", "-x", "commands", "--args", executable, *words], tmp_path)
    if "ptrace" in done.err:
        pytest.skip("gdb may not trace here")
    seen = [line.split() for line in done.out.splitlines() if line.startswith(("alloc ", "free "))]
    events = [(kind, list(map(int, words))) for kind, *words in seen]
    big = [words for kind, words in events if kind == "alloc" and words[1] > 1_000_000]
    rows = json.loads(report("summary", "out.nthb", "--json", folder=tmp_path).ok().out)["rows"]
    (row,) = [row for row in rows if row["name"].startswith("big")]
    # The small part of such an object may be sampled, too.
    assert 40 < len(big) <= row["samples"] <= len(big) + 2
    assert sum(weight for *_, weight in big) == pytest.approx(row["self_bytes"]["estimate"], rel=0.02)
    freed = {block for kind, (block, *_) in events if kind == "free"}
    assert len({block for block, *_ in big} & freed) >= 25
