"""After every kind of exit, the profile up to that moment can be read, and the exit takes little time."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest

from harness import Interpreter, rows_so_far, summary

# Allocates, may wait until standard input ends, and then ends itself.
PROGRAM = """
import os, signal, sys, threading, time

def allocate():
    keep = []
    while len(keep) < {kept}:
        # A different object each time: PyPy's compiler would allocate equal ones only once.
        keep.append(bytes(1000 + len(keep) % 8))
    return keep

kept = allocate()
if {wait}:
    sys.stdin.read()
{end}
"""

ORDERLY = {
    "end": "pass",
    "sys.exit": "sys.exit(3)",
    "exception": "raise ValueError",
    "os._exit": "os._exit(4)",
    "exit in a thread's shadow": "threading.Thread(target=time.sleep, args=(0.2,)).start()",
    "daemon thread": "threading.Thread(target=all, args=(iter(list, 1),), daemon=True).start()",
    "interrupt": "raise KeyboardInterrupt",
}
VIOLENT = {
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "segfault": "os.kill(os.getpid(), signal.SIGSEGV)",
    "abort": "os.abort()",
}


@pytest.mark.parametrize("end", ORDERLY)
def test_a_normal_exit_completes_the_profile(end: str, interpreter: Interpreter, tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text(PROGRAM.format(kept=5000, wait=False, end=ORDERLY[end]))
    plain = interpreter.python(script, folder=tmp_path)
    done = interpreter.nthbyte("run", "-q", "--every", "1K", "-o", "out.nthb", script, folder=tmp_path)
    assert (done.status, done.out, done.err) == (plain.status, plain.out, plain.err)
    found = summary(tmp_path / "out.nthb")
    assert found["complete"]
    assert found["damage"] == []
    _holds_what_was_kept(found, 5000)


@pytest.mark.parametrize("kind", ["script", "module", "code"])
def test_the_end_of_the_program_destroys_its_objects(kind: str, cpython: Interpreter, tmp_path: Path) -> None:
    """They are destroyed with its ``__main__``, as without nthbyte, and not by the collector afterwards."""
    source = "import gc; kept = [[] for _ in range(100_000)]; gc.set_debug(gc.DEBUG_STATS)"
    (tmp_path / "app.py").write_text(source)
    words = {"script": ("app.py",), "module": ("-m", "app"), "code": ("-c", source)}[kind]
    plain = cpython.python(*words, folder=tmp_path)
    done = cpython.nthbyte("run", "-q", "-o", "out.nthb", *words, folder=tmp_path)
    for ended in (plain, done):
        unreachable = [int(count) for count in re.findall(r"gc: done, (\d+) unreachable", ended.err)]
        assert unreachable and max(unreachable) < 50_000, ended.err


# What a program may leave behind, so that nothing can be imported or opened at its end.
POOR = {
    "no path": "import sys; sys.path.clear(); sys.meta_path.clear(); sys.path_importer_cache.clear()",
    "no modules": "import sys; sys.modules.clear()",
    "no import": "import builtins; builtins.__import__ = None",
    "no descriptors": "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
    "no folder": "import os; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')",
    "elsewhere": "import os; os.chdir('/')",
}


@pytest.mark.launcher
@pytest.mark.parametrize("end", POOR)
def test_the_line_at_the_end_needs_nothing_of_the_program(
    end: str, interpreter: Interpreter, tmp_path: Path
) -> None:
    if end == "no import" and interpreter.is_pypy and interpreter.python_version < (3, 10):
        pytest.skip("this PyPy's own calls from C to Python import sys")
    (tmp_path / "app.py").write_text(PROGRAM.format(kept=1000, wait=False, end=POOR[end]))
    done = interpreter.nthbyte("run", "-o", tmp_path / "out.nthb", "app.py", folder=tmp_path).ok()
    assert done.err.splitlines()[-1].endswith(" samples; see it with: nthbyte explain out.nthb"), done.err
    assert summary(tmp_path / "out.nthb")["complete"]


INDEX = """
import os
class Four:
    def __index__(self): return 4
for wrong in ("4", 4.0, None):
    try:
        os._exit(wrong)
    except TypeError as error:
        print(error)
def later(): return [bytes(1000 + number % 8) for number in range(5000)]
kept = later()
os._exit(Four())
"""


@pytest.mark.launcher
def test_the_status_of_an_exit_may_be_any_integer(interpreter: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(INDEX)
    plain = interpreter.python("-u", "app.py", folder=tmp_path)
    done = interpreter.nthbyte("run", "-q", "-o", "out.nthb", "app.py", folder=tmp_path, flags=("-u",))
    assert plain.status == done.status == 4
    # CPython 3.14 and later say it in their own words.
    assert done.out.count("integer") == plain.out.count("integer") == 3
    # A call that fails does not end the session.
    found = summary(tmp_path / "out.nthb")
    assert found["complete"] and any("later" in row["name"] for row in found["rows"])


SENT = """
import os, pickle, posix
sent = pickle.dumps(os._exit)
print(sent, pickle.loads(sent) is os._exit is posix._exit)
"""


@pytest.mark.launcher
def test_exit_can_be_sent_to_another_process(interpreter: Interpreter, tmp_path: Path) -> None:
    plain = interpreter.python("-c", SENT, folder=tmp_path).ok()
    done = interpreter.nthbyte("run", "-q", "-o", "out.nthb", "-c", SENT, folder=tmp_path).ok()
    assert done.out == plain.out


@pytest.mark.parametrize("end", VIOLENT)
def test_a_killed_program_leaves_a_readable_profile(
    end: str, interpreter: Interpreter, tmp_path: Path
) -> None:
    script = tmp_path / "app.py"
    script.write_text(PROGRAM.format(kept=5000, wait=True, end=VIOLENT[end]))
    profile = tmp_path / "out.nthb"
    words = ("run", "-q", "--every", "1K", "-o", profile, script)
    done = interpreter.nthbyte(
        *words, folder=tmp_path, until=lambda: _highest(rows_so_far(profile)) >= 0.9 * 5000 * 1033
    )
    assert done.status < 0
    found = summary(profile)
    # The profile of a program that SIGTERM ends is completed.
    assert found["complete"] == (end == "SIGTERM")
    assert found["damage"] == []
    _holds_what_was_kept(found, 5000)


# Ends by SIGTERM, after children that end in the same way.
TERMINATED = """
import multiprocessing, os, signal, sys

def end():
    os.kill(os.getpid(), signal.SIGTERM)

if __name__ == "__main__":
    pid = os.fork()
    if pid == 0:
        end()
    os.waitpid(pid, 0)
    process = multiprocessing.get_context("spawn").Process(target=end)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGTERM
    print("out", flush=True)
    {last}
    end()
"""


@pytest.mark.launcher
def test_a_program_that_sigterm_ends_names_its_profile(interpreter: Interpreter, tmp_path: Path) -> None:
    """The default name has a number that the user does not know. Only the process that was started says it."""
    (tmp_path / "my app.py").write_text(TERMINATED.format(last="pass"))
    done = interpreter.nthbyte("run", "my app.py", folder=tmp_path)
    said, _, name = done.err.partition("'")
    assert said == "nthbyte: ended by SIGTERM; see it with: nthbyte explain "
    assert (done.status, done.out, name[-2:]) == (-signal.SIGTERM, "out\n", "'\n")
    assert summary(tmp_path / name[:-2])["complete"]


NOT_SAID = {
    "quiet": (["-q"], "pass"),
    "stderr is closed": ([], "os.close(2)"),
    "another stderr": ([], "os.dup2(os.open('theirs', os.O_CREAT | os.O_WRONLY), 2)"),
    "a device": (["-o", "/dev/null"], "pass"),
    "the session has ended": ([], "import nthbyte; nthbyte.stop()"),
    "the program ends itself": ([], "signal.signal(signal.SIGTERM, lambda *_: os._exit(0))"),
}


@pytest.mark.launcher
@pytest.mark.parametrize("why", NOT_SAID)
def test_the_line_at_sigterm_is_not_printed(why: str, interpreter: Interpreter, tmp_path: Path) -> None:
    options, last = NOT_SAID[why]
    (tmp_path / "app.py").write_text(TERMINATED.format(last=last))
    done = interpreter.nthbyte("run", *options, "app.py", folder=tmp_path)
    assert done.out == "out\n" and "ended by SIGTERM" not in done.err
    theirs = tmp_path / "theirs"
    assert not theirs.exists() or theirs.read_text() == ""


@pytest.mark.launcher
def test_the_line_at_sigterm_is_that_of_the_recording(interpreter: Interpreter, tmp_path: Path) -> None:
    code = "import os, signal; [os.kill(os.getpid(), number) for number in (10, 10, 10, signal.SIGTERM)]"
    words = ("run", "-o", "out.nthb", "--signal", "10", "-c", code)
    done = interpreter.nthbyte(*words, folder=tmp_path)
    first, second, third = done.err.splitlines()
    assert first.endswith("; see it with: nthbyte explain out.nthb")
    assert second == "nthbyte: the next recording is out-2.nthb"
    assert third == "nthbyte: ended by SIGTERM; see it with: nthbyte explain out-2.nthb"


def _highest(rows: dict[str, Any]) -> float:
    """Returns the upper limit of the bytes of the function that allocates."""
    return float(rows["allocate"]["total_bytes"]["high"]) if "allocate" in rows else 0


LARGE = """
import os, signal, sys

def allocate():
    return bytes(100_000_000)

kept = allocate()
sys.stdin.read()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("every", ["1", "512K"])
def test_the_last_object_is_not_lost_if_it_is_large(
    every: str, interpreter: Interpreter, tmp_path: Path
) -> None:
    profile = tmp_path / "out.nthb"
    words = ("run", "-q", "--every", every, "-o", profile, "-c", LARGE)
    done = interpreter.nthbyte(
        *words, folder=tmp_path, until=lambda: _highest(rows_so_far(profile)) >= 100_000_000
    )
    assert done.status < 0
    found = summary(profile)
    assert found["damage"] == []
    rows = {row["name"]: row for row in found["rows"]}
    assert 100_000_000 <= rows["allocate"]["total_bytes"]["estimate"] < 101_000_000


def _holds_what_was_kept(found: dict[str, Any], kept: int) -> None:
    rows = {row["name"]: row for row in found["rows"]}
    low, high = (rows["allocate"]["total_bytes"][end] for end in ("low", "high"))
    # Besides the blocks there are integers and, until PyPy has compiled the loop, other small objects.
    assert low <= 1.6 * kept * 1033
    assert high >= 0.9 * kept * 1033
