"""``--start-after``, ``--for`` and ``--signal`` record parts of a run."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest

from harness import Interpreter, report, summary

# Runs each phase until a condition holds, so no outcome depends on time.
PROGRAM = """
import collections, glob, os, signal, sys, time
kept = collections.deque(maxlen=20)
def phase():
    kept.append([[n] for n in range(20_000)])
def until(holds):
    end = time.monotonic() + 300
    while not holds():
        phase()
        assert time.monotonic() < end
def has_begun():
    # A block is in the file. (It is also open when its name is tried, before the recording.)
    return any(os.path.getsize(file) > 1000 for file in glob.glob("out*.nthb"))
def target(descriptor):
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except FileNotFoundError:
        return ""
def open_files():
    return sum(target(descriptor).endswith(".nthb") for descriptor in os.listdir("/proc/self/fd"))
def before(): until(has_begun)
def during(): until(lambda: open_files() == 0)
def after(): [phase() for _ in range(20)]
"""

TIMED = PROGRAM + "before(); during(); after()"

SIGNALS = (
    PROGRAM
    + """
def first(): [phase() for _ in range(20)]
def second(): [phase() for _ in range(20)]
def third(): [phase() for _ in range(20)]
first()
os.kill(os.getpid(), signal.SIGUSR1)
second()
os.kill(os.getpid(), signal.SIGUSR1)
after()
os.kill(os.getpid(), signal.SIGUSR1)
third()
"""
)


def functions(profile: Path) -> set[str]:
    return {row["name"] for row in summary(profile)["rows"]}


def test_a_time_after_the_start(interpreter: Interpreter, tmp_path: Path) -> None:
    options = ["--every", "1K", "-o", "out.nthb", "--start-after", "3s", "--for", "1s"]
    # A thread that waits is no reason for a warning of a fork, and stays out of the child.
    # On a busy machine, the system needs longer to remove it than a program should wait.
    waits = "from nthbyte import _schedule, _session\n_schedule._LONGEST_WAIT = _session._LONGEST_WAIT = 600"
    program = f"{waits}\nimport os\nif os.fork() == 0: os._exit(0)\nos.wait()\n{TIMED}"
    done = interpreter.nthbyte(
        "run", *options, "-c", program, folder=tmp_path, flags=("-W", "error::DeprecationWarning")
    ).ok()
    [line] = done.err.splitlines()
    assert "samples" in line
    assert "after" not in functions(tmp_path / "out.nthb")
    assert summary(tmp_path / "out.nthb")["complete"]


SLOW = (
    PROGRAM
    + """
class Slow:
    def write(self, text):
        time.sleep(1)
        sys.stderr.write(text)
    def flush(self): pass
sys.__stderr__ = Slow()
before(); during()
"""
)


def test_the_exit_waits_for_the_end_of_a_recording(interpreter: Interpreter, tmp_path: Path) -> None:
    options = ["--every", "1K", "-o", "out.nthb", "--for", "100ms"]
    done = interpreter.nthbyte("run", *options, "-c", SLOW, folder=tmp_path).ok()
    assert "samples" in done.err


def test_each_recording_of_a_signal_has_its_file(interpreter: Interpreter, tmp_path: Path) -> None:
    options = ["--every", "1K", "-o", "out.nthb", "--signal", "USR1"]
    interpreter.nthbyte("run", *options, "-c", SIGNALS, folder=tmp_path).ok()
    one, two = functions(tmp_path / "out.nthb"), functions(tmp_path / "out-2.nthb")
    assert "second" in one and not one & {"first", "third", "after"}
    assert "third" in two and not two & {"first", "second", "after"}


SERIES = """
import os, shutil, signal, sys
for _ in range(2 * int(sys.argv[1])):
    os.kill(os.getpid(), signal.SIGUSR1)
    kept = [[n] for n in range(1000)]
pid = os.fork()
if pid == 0:
    # A profile of that name, from an earlier process with the same number.
    shutil.copy("out.nthb", f"{sys.argv[3]}.{os.getpid()}.nthb")
    os.kill(os.getpid(), signal.SIGUSR1)
    sys.exit()
os.waitpid(pid, 0)
assert os.path.exists(f"{sys.argv[3]}.{pid}-2.nthb")
"""


def test_each_recording_replaces_that_of_an_earlier_run(interpreter: Interpreter, tmp_path: Path) -> None:
    """With -f no recording of this run is replaced, nothing that is no profile, and nothing by a child."""

    def run(name: str, recordings: int, *options: str, first: str = "out") -> dict[str, str]:
        program = ["-c", SERIES, str(recordings), name, first]
        words = ["-q", "-o", "out.nthb", "--signal", "USR1", *options, *program]
        interpreter.nthbyte("run", *words, folder=tmp_path).ok()
        profiles = [path for number in (1, 3, 4, 5) if (path := tmp_path / names[number]).exists()]
        return {path.name: summary(path)["command"][-2] for path in profiles}

    names = ["", "out.nthb", *(f"out-{number}.nthb" for number in range(2, 6))]
    run("old", 3)
    assert summary(tmp_path / "out-2.nthb")["command"][-2] == "old"
    (tmp_path / "out-2.nthb").write_text("mine")
    assert run("new", 2, "-f") == {names[1]: "new", names[3]: "new"}
    assert run("third", 3, "-f") == {names[1]: "third", names[3]: "third", names[4]: "third"}
    assert run("again", 1, "-f") == {names[1]: "again", names[3]: "third", names[4]: "third"}
    # Without -f, nothing is replaced.
    assert run("last", 1, first="out-5") == {
        names[1]: "again",
        names[3]: "third",
        names[4]: "third",
        names[5]: "last",
    }
    assert (tmp_path / "out-2.nthb").read_text() == "mine"


NO_FOLDER = """
import os, signal
os.mkdir("gone")
os.chdir("gone")
os.rmdir("../gone")
os.kill(os.getpid(), signal.SIGUSR1)
kept = [[n] for n in range(20_000)]
print("well")
"""

NO_THREAD = """
import _thread, os, signal
def refuse(*arguments):
    raise RuntimeError("can't start new thread")
_thread.start_new_thread = refuse
os.kill(os.getpid(), signal.SIGUSR1)
kept = [[n] for n in range(20_000)]
print("well")
"""


def test_a_recording_begins_in_a_folder_that_is_gone(interpreter: Interpreter, tmp_path: Path) -> None:
    words = ("run", "-o", "out.nthb", "--every", "1K")
    interpreter.nthbyte(*words, "-c", "pass", folder=tmp_path).ok()
    done = interpreter.nthbyte(*words, "--signal", "USR1", "-c", NO_FOLDER, folder=tmp_path).ok()
    assert done.out == "well\n"
    assert done.err.startswith("nthbyte: out.nthb exists: the profile is out-2.nthb (-f replaces it)\n")
    assert summary(tmp_path / "out-2.nthb")["samples"] > 0


def test_a_recording_whose_end_no_thread_can_await(interpreter: Interpreter, tmp_path: Path) -> None:
    words = ("run", "-o", "out.nthb", "--every", "1K", "--signal", "USR1", "--for", "1h", "-c", NO_THREAD)
    done = interpreter.nthbyte(*words, folder=tmp_path).ok()
    assert done.out == "well\n"
    reason = "no thread can wait for the time (can't start new thread)"
    assert f"nthbyte: {reason}: the recording ends with the program\n" in done.err
    assert summary(tmp_path / "out.nthb")["samples"] > 0


@pytest.mark.parametrize("option", [("--start-after", "1h"), ("--signal", "SIGUSR2")])
def test_a_program_that_ends_before(
    option: tuple[str, str], interpreter: Interpreter, tmp_path: Path
) -> None:
    done = interpreter.nthbyte("run", *option, "-o", "out.nthb", "-c", "print(1)", folder=tmp_path).ok()
    assert done.out == "1\n"
    assert done.err == "nthbyte: the program ended before a recording began, so there is no profile\n"
    assert not list(tmp_path.iterdir())


def test_a_program_that_handles_the_signal(interpreter: Interpreter, tmp_path: Path) -> None:
    code = "import os, signal; signal.signal(signal.SIGUSR1, print); os.kill(os.getpid(), signal.SIGUSR1)"
    options = ["--signal", "USR1", "-o", "out.nthb"]
    done = interpreter.nthbyte("run", *options, "-c", code, folder=tmp_path).ok()
    assert done.err.startswith("nthbyte: the program handles the signal SIGUSR1 itself"), done.err
    assert done.err.count("\n") == 1 and "RTMIN" in done.err
    assert not list(tmp_path.iterdir())


CHILD = """
import os, signal, sys
pid = os.fork()
if pid == 0:
    os.kill(os.getpid(), signal.SIGUSR1)
    kept = [[n] for n in range(50_000)]
    sys.exit()
os.waitpid(pid, 0)
os.kill(os.getpid(), signal.SIGUSR1)
print(pid)
"""


def test_a_forked_child_has_its_own_recordings(interpreter: Interpreter, tmp_path: Path) -> None:
    options = ["-q", "--every", "1K", "-o", "out.nthb", "--signal", "USR1"]
    done = interpreter.nthbyte("run", *options, "-c", CHILD, folder=tmp_path).ok()
    child = summary(tmp_path / f"out.{done.out.strip()}.nthb")
    assert child["samples"] > 1000
    [process] = child["processes"]
    first = summary(tmp_path / "out.nthb")
    assert process["parent_pid"] == first["pid"]
    # The child's recording began before its parent's.
    assert child["started_unix_nanos"] < first["started_unix_nanos"]
    both = report("summary", "--all", "--json", "--domain", "python", "out.nthb", folder=tmp_path).ok()
    assert both.err == ""
    assert json.loads(both.out)["samples"] == child["samples"] + first["samples"]


ONLY_CHILDREN = """
import os, signal, sys
for number in range(int(sys.argv[1])):
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGUSR1)
        sys.exit()
    os.waitpid(pid, 0)
"""


@pytest.mark.parametrize("children", [1, 2])
def test_recordings_of_children_alone_are_named(
    children: int, interpreter: Interpreter, tmp_path: Path
) -> None:
    options = ["-o", "a b.nthb", "--signal", "USR1"]
    words = ["run", *options, "-c", ONLY_CHILDREN, str(children)]
    done = interpreter.nthbyte(*words, folder=tmp_path).ok()
    said, names = done.err.rstrip("\n").split("nthbyte explain ")
    assert said.startswith("nthbyte: this process has no profile, but ")
    assert sorted(shlex.split(names)) == sorted(path.name for path in tmp_path.iterdir())
    assert len(shlex.split(names)) == children


FORKED = """
import os, sys, time
pid = os.fork()
if pid == 0:
    # The recording begins and ends meanwhile, and its threads run: on a slow machine, some of that.
    end = time.monotonic() + 3
    while time.monotonic() < end:
        time.sleep(0.01)
        kept = [[n] for n in range(20_000)]
    sys.exit(7)
print(pid, os.waitpid(pid, 0)[1])
"""


@pytest.mark.parametrize("options", [("--start-after", "300ms", "--for", "1s"), ("--for", "1s")])
def test_a_forked_child_lives_through_its_recording(
    options: tuple[str, ...], interpreter: Interpreter, tmp_path: Path
) -> None:
    words = ["run", "-q", "--every", "1K", "-o", "out.nthb", *options, "-c", FORKED]
    pid, status = interpreter.nthbyte(*words, folder=tmp_path).ok().out.split()
    assert int(status) == 7 << 8
    child = tmp_path / f"out.{pid}.nthb"
    assert not child.exists() or summary(child)["complete"]


API = """
import os, sys, warnings
import nthbyte
warnings.simplefilter("error")
kept = []
nthbyte.start("out.nthb", every="1K")
kept += [[n] for n in range(10_000)]
first = nthbyte.stop()
warnings.simplefilter("always")
with nthbyte.Profiler("out.nthb", every="1K") as second:
    kept += [[n] for n in range(20_000)]
nthbyte.start("out.nthb", force=True)
third = nthbyte.stop()
print(*[os.path.basename(one.path) for one in (first, second.result, third)], second.result.samples > 500)
"""


def test_two_sessions_never_write_to_one_file(interpreter: Interpreter, tmp_path: Path) -> None:
    done = interpreter.python("-c", API, folder=tmp_path).ok()
    assert done.out.split() == ["out.nthb", "out-2.nthb", "out.nthb", "True"]
    assert "RuntimeWarning" in done.err and "out-2.nthb" in done.err
    # An empty file is one that the program has made for the profile.
    (tmp_path / "mine.nthb").touch()
    words = ["run", "-q", "-o", "mine.nthb", "-c", "pass"]
    assert interpreter.nthbyte(*words, folder=tmp_path).ok().err == ""
    assert summary(tmp_path / "mine.nthb")["complete"]


RACE = """
import os, sys
from nthbyte._agent import load
agent = load()
ready, go = os.pipe()
children = []
for _ in range(16):
    pid = os.fork()
    if pid == 0:
        os.close(go)
        os.read(ready, 1)
        os.write(1, f"{agent.claim(sys.argv[1], len(sys.argv) > 2)} ".encode())
        os._exit(0)
    children.append(pid)
os.close(go)
for pid in children:
    os.waitpid(pid, 0)
"""


@pytest.mark.parametrize("there", [None, b"", b"\x89nthb\r\n\x1aa profile"], ids=["new", "empty", "replaced"])
def test_processes_claim_different_files(
    there: bytes | None, interpreter: Interpreter, tmp_path: Path
) -> None:
    path = tmp_path / "out.nthb"
    if there is not None:
        path.write_bytes(there)
    done = interpreter.python("-c", RACE, path, *(["force"] if there else []), folder=tmp_path).ok()
    names = sorted(os.path.basename(line) for line in done.out.split())
    assert names == sorted(["out.nthb", *(f"out-{number}.nthb" for number in range(2, 17))])


REPLACED = """
import os, subprocess, sys, nthbyte
nthbyte.start("out.nthb", every="1K")
os.link("out.nthb", "mine.nthb")
kept = [[n] for n in range(20_000)]
words = ["run", "-f", "-q", "-o", "out.nthb", "-c", "kept = [[n] for n in range(100_000)]", "other"]
subprocess.run([sys.executable, "-m", "nthbyte", *words], check=True)
kept += [[n] for n in range(20_000)]
print(*nthbyte.stop().notes)
"""


def test_a_session_whose_profile_is_replaced_goes_on_with_its_own_file(
    interpreter: Interpreter, tmp_path: Path
) -> None:
    assert interpreter.python("-c", REPLACED, folder=tmp_path).ok().out == "\n"
    mine, other = (summary(tmp_path / name) for name in ("mine.nthb", "out.nthb"))
    assert mine["complete"] and other["complete"]
    assert other["command"][-1] == "other" != mine["command"][-1]
    assert {path.name for path in tmp_path.iterdir()} == {"mine.nthb", "out.nthb"}


def console_scripts(folder: Path, interpreter: str) -> None:
    folder.mkdir()
    (folder / "greet").write_text(f"#!{interpreter}\nimport sys; print(sys.argv, sys.path[0], __name__)\n")
    (folder / "shell").write_text("#!/bin/sh\necho hello\n")
    for name in ("greet", "shell"):
        (folder / name).chmod(0o755)


def test_a_console_script_runs_as_by_its_path(interpreter: Interpreter, tmp_path: Path) -> None:
    where = interpreter.python("-c", "import sys; print(sys.executable)", folder=tmp_path).ok().out.strip()
    if interpreter.tree is not None:
        pytest.skip("a virtual environment of a chroot")
    interpreter.python("-m", "venv", "--without-pip", "venv", folder=tmp_path).ok()
    python = Interpreter(str(tmp_path / "venv" / "bin" / "python"))
    scripts = tmp_path / "venv" / "bin"
    console_scripts(tmp_path / "made", f"{scripts}/python")
    for name in ("greet", "shell"):
        (tmp_path / "made" / name).rename(scripts / name)
    (tmp_path / "greet").mkdir()  # a folder without __main__.py is no program
    plain = python.python(scripts / "greet", "-x", folder=tmp_path).ok()
    assert python.nthbyte("run", "-q", "greet", "-x", folder=tmp_path) == plain
    assert len(list(tmp_path.glob("nthbyte-greet.*.nthb"))) == 1
    done = python.nthbyte("run", "-q", "shell", folder=tmp_path)
    assert done.status == 2 and "is a script for /bin/sh" in done.err
    # Another Python's script is not run by this one.
    (tmp_path / "greet").rmdir()
    elsewhere = {"PATH": f"{scripts}:{os.environ['PATH']}"}
    done = Interpreter(where).nthbyte("run", "-q", "greet", folder=tmp_path, environment=elsewhere)
    assert done.status == 2 and "belongs to another Python" in done.err


# A recording begins in the thread of an alarm, and the schedule has not yet set the alarm that ends it.
FORK_WHILE_IT_BEGINS = """
import os, threading, time
import nthbyte._schedule as schedule
from nthbyte._options import OPTIONS
from nthbyte._session import configure
begin, has_begun = schedule.begin, threading.Event()
def slow(*arguments, **options):
    path = begin(*arguments, **options)
    has_begun.set()
    time.sleep(0.1)
    return path
schedule.begin = slow
config = configure("out.nthb", {option.name: option.default for option in OPTIONS})
running = schedule.Schedule(config, force=False, is_quiet=True, start_after=0, length=1000, signal=None)
running.run()
has_begun.wait()
child = os.fork()
if child == 0:
    print(running._alarm is not None, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(running._alarm is not None, running._acting.locked())
"""


def test_a_fork_waits_for_an_alarm_that_begins_a_recording(interpreter: Interpreter, tmp_path: Path) -> None:
    done = interpreter.python("-W", "error", "-c", FORK_WHILE_IT_BEGINS, folder=tmp_path).ok()
    assert done.out.split() == ["True", "True", "False"]
