"""``nthbyte attach`` and ``detach``: a process that runs already."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

import harness
from cpython.attaching import GOES, in_container, running

# What a program could notice: printed once before and once after.
SEEN = """
import sys

def seen():
    names = sorted(name for name in vars(sys.modules["__main__"]) if name not in ("kept", "before"))
    return names, list(sys.path), list(sys.argv), len(sys.warnoptions)
"""

# Waits for a line, allocates, says so, and waits for the end.
WORK = """
kept = []

def work():
    for number in range(20000):
        kept.append(str(number) * 50)
"""

WORKS = f"{SEEN}{WORK}before = seen()\ninput()\nwork()\nprint('worked', flush=True)\ninput()\nprint(before == seen())\n"


def test_a_process_is_recorded_from_now_on(cpython: harness.Interpreter, tmp_path: Path) -> None:
    with running(cpython, WORKS, tmp_path) as one:
        attached = one.attach("-o", "a.nthb", "--every", "4KiB")
        assert attached.stderr is not None
        first = attached.stderr.readline()
        assert first.startswith(f"nthbyte: recording process {one.process.pid} until Ctrl-C, into a.nthb; ")
        one.say()
        assert one.line() == "worked"
        attached.send_signal(signal.SIGINT)
        assert "samples; see it with: nthbyte explain a.nthb\n" in attached.stderr.read()
        assert attached.wait() == 0
        done = one.end("\n").ok()
    assert done.out == "True\n"
    assert done.err == ""
    found = harness.summary(tmp_path / "a.nthb", "--by", "function")
    assert found["rows"][0]["name"] == "work"
    assert "who allocated them is not known" in found["notes"][0]
    for report in ("summary", "explain", "leaks", "memory"):
        text = harness.report(report, tmp_path / "a.nthb", folder=tmp_path).ok().out
        assert "there before, and who" in " ".join(text.split()), report


@pytest.mark.launcher
def test_it_ends_by_time_by_detach_and_with_the_process(cpython: harness.Interpreter, tmp_path: Path) -> None:
    with running(cpython, WORKS, tmp_path) as one:
        timed = one.nthbyte("attach", "-o", "time.nthb", "--duration", "0.1").ok()
        assert "recording" in timed.err and "see it with: nthbyte explain time.nthb" in timed.err
        refused = one.nthbyte("detach")
        assert refused.status == 1
        assert "is not recorded: nothing to end" in refused.err
        for ending, line in (
            ("detach", "was ended, by the program or by nthbyte detach"),
            ("exit", "has ended; see it with"),
        ):
            attached = one.attach()
            assert attached.stderr is not None
            assert "recording" in attached.stderr.readline()
            again = one.nthbyte("attach")
            assert again.status == 1 and "is recorded already, into" in again.err
            if ending == "detach":
                assert "see it with: nthbyte explain" in one.nthbyte("detach").ok().err
            else:
                one.end("\n\n").ok()
            assert line in attached.stderr.read()
            assert attached.wait() == 0
    for profile in tmp_path.glob("*.nthb"):
        assert harness.summary(profile)["complete"], profile


def test_options_of_a_run_mean_the_same(cpython: harness.Interpreter, tmp_path: Path) -> None:
    """With one seed, the same work after the beginning is sampled at the same places."""
    counts = []
    for name in ("one", "two"):
        with running(cpython, WORKS, tmp_path) as one:
            # What it does before it waits would be recorded in one run, and not in another one.
            one.until_it_waits()
            options = [
                "--seed",
                "5",
                "--every",
                "4KiB",
                "--no-native",
                "--tags",
                "service:web",
                "--snapshot",
                "USR2",
            ]
            attached = one.attach("-o", f"{name}.nthb", "--keep", "1h", *options)
            assert attached.stderr is not None
            assert "recording" in attached.stderr.readline()
            one.say()
            assert one.line() == "worked"
            os.kill(one.number, signal.SIGUSR2)
            assert one.nthbyte("snapshot").status == 0
            attached.send_signal(signal.SIGINT)
            attached.communicate()
            one.end("\n").ok()
        found = harness.summary(tmp_path / f"{name}.nthb", "--by", "function")
        assert found["tags"] == ["service=web"]
        held = harness.report("holders", "--json", tmp_path / f"{name}.nthb", folder=tmp_path).ok()
        assert "kept" in held.out
        counts.append(next(row["samples"] for row in found["rows"] if row["name"] == "work"))
    assert counts[0] == counts[1] > 100
    with running(cpython, WORKS, tmp_path) as one:
        refused = one.nthbyte("attach", "--fixed")
        assert refused.status == 1 and "it works on PyPy only" in refused.err
        one.end("\n\n").ok()


# Each prints something that shows whether it ran as it should, and goes on until it has read a line.
SITUATIONS = {
    "read": "import os; print(os.read(0, 10))",
    "input": "print(input())",
    "poll": "import select; p = select.poll(); p.register(0, 1); print(len(p.poll(60_000)))",
    "select": "import select; print(select.select([0], [], [], 60)[0])",
    "lock": (
        "import threading, sys; l = threading.Lock(); l.acquire()\n"
        "def wait():\n sys.stdin.readline(); l.release()\n"
        "threading.Thread(target=wait).start(); print(l.acquire(timeout=60))"
    ),
    "join": "import threading, sys; t = threading.Thread(target=sys.stdin.readline); t.start(); print(t.join())",
    "shutdown": "import threading, sys; threading.Thread(target=sys.stdin.readline).start(); print('end')",
    "wait": "import subprocess; print(subprocess.call(['head', '-n', '1']))",
    "sigwait": (
        "import signal; found = set()\nwhile goes(): found.add(signal.sigtimedwait([signal.SIGUSR1], 1))\nprint(found)"
    ),
    "sleep": (
        "import time; whole = True\n"
        "while goes(): t = time.monotonic(); time.sleep(1); whole &= time.monotonic() - t >= 1\nprint(whole)"
    ),
    "asyncio": (
        "import asyncio, sys\nasync def read():\n loop, end = asyncio.get_running_loop(), asyncio.Event()\n"
        " loop.add_reader(0, end.set); await end.wait(); print('end')\nasyncio.run(read())"
    ),
    "busy": "while goes(): str(0.5)\nprint('end')",
    "without the GIL": (
        "import hashlib; found = set()\nwhile goes(): found.add(hashlib.pbkdf2_hmac('sha256', b'a', b'b', 200_000))\n"
        "print(found)"
    ),
    "without the GIL, beside a thread": (
        "import hashlib, sys, threading; t = threading.Thread(target=sys.stdin.readline); t.start(); found = set()\n"
        "while t.is_alive(): found.add(hashlib.pbkdf2_hmac('sha256', b'a', b'b', 200_000))\nprint(found)"
    ),
    "with the GIL": "found = set()\nwhile goes(): found.add(sum(range(3_000_000)))\nprint(found)",
    "threads": (
        "import threading, time; done = threading.Event()\n"
        "def f(i):\n while not done.is_set(): time.sleep(.01) if i % 50 else str(i)\n"
        "ts = [threading.Thread(target=f, args=(i,)) for i in range(500)]\n"
        "[t.start() for t in ts]; input(); done.set(); [t.join() for t in ts]; print('end')"
    ),
    "forks": (
        "import os; bad = 0\n"
        "while goes():\n p = os.fork()\n if not p: os._exit(7)\n"
        " bad += os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) != 7\nprint(bad)"
    ),
    "handler": (
        "import signal, time\ndef h(*a):\n while goes(): str(0.5)\n print('handled')\n"
        "signal.signal(signal.SIGALRM, h); signal.setitimer(signal.ITIMER_REAL, .01); time.sleep(.1); input()"
    ),
    "timer": (
        "import signal, time\nn = 0\ndef h(*a):\n global n; n += 1\n"
        "signal.signal(signal.SIGALRM, h); signal.setitimer(signal.ITIMER_REAL, .001, .001)\n"
        "while goes() or n < 10: str(0.5)\nsignal.setitimer(signal.ITIMER_REAL, 0); print(n > 9)"
    ),
    "import": "import sys; sys.path.insert(0, '.'); open('slow.py', 'w').write('input()'); import slow; print('end')",
    "recursion": "def f(n): return input() if n == 0 else f(n - 1)\nprint(f(900))",
    "floats": (
        "a = [0.5 * i for i in range(64)]; bad = 0\n"
        "while goes(): bad += sum(x * 1.5 - x for x in a) != 504.0\nprint(bad)"
    ),
    # As `namedtuple` executes code, and programs that evaluate formulas.
    "no builtins": (
        "code = compile('for x in y: z = x', 'code', 'exec'); names = {'__builtins__': {}, 'y': range(50_000)}\n"
        "while goes(): exec(code, names)\nprint(names['z'])"
    ),
    "raising handler": (
        "import signal, time\n"
        "def h(number, frame):\n"
        " while frame and frame.f_code.co_name != 'inner': frame = frame.f_back\n"
        " if frame: raise LookupError\n"
        "def inner():\n while True: str(0.5)\n"
        "signal.signal(signal.SIGALRM, h); signal.setitimer(signal.ITIMER_REAL, .001, .001)\n"
        "n = 0\nwhile goes() or n < 10:\n try: inner()\n except LookupError: n += 1\n"
        "signal.setitimer(signal.ITIMER_REAL, 0); print(n > 9)"
    ),
}


# A signal comes while nthbyte is imported, and is held back until the script has ended.
PAUSES = """
import os, signal, sys
def handler(number, frame): print("handled", flush=True)
def hook(event, arguments):
    if event == "import" and arguments[0] == "nthbyte._remote": os.kill(os.getpid(), signal.SIGUSR1)
signal.signal(signal.SIGUSR1, handler)
sys.addaudithook(hook)
signal.pause()
input()
"""


def test_a_signal_that_comes_while_it_begins_ends_a_wait(
    cpython: harness.Interpreter, tmp_path: Path
) -> None:
    with running(cpython, PAUSES, tmp_path) as one:
        # Before, there is no hook that sends the signal.
        one.until_it_waits()
        one.nthbyte("attach", "--for", "0.05").ok()
        # Nothing else ends the pause.
        assert one.end("\n").ok().out == "handled\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", SITUATIONS)
def test_a_program_does_the_same_in_every_situation(
    cpython: harness.Interpreter, tmp_path: Path, name: str
) -> None:
    folders = [tmp_path / "plain", tmp_path / "attached"]
    for folder in folders:
        folder.mkdir()
    ends = []
    with (
        running(cpython, GOES + SITUATIONS[name], folders[0]) as plain,
        running(cpython, GOES + SITUATIONS[name], folders[1]) as attached,
    ):
        attached.nthbyte("attach", "--for", "0.05", "--timeout", "5min").ok()
        for one in (plain, attached):
            done = one.end("line\n")
            ends.append((done.status, done.out, done.err))
    assert ends[0] == ends[1]


# Works for long: the attacher is killed again and again meanwhile.
LONG = """
import threading

def waits():
    input()
    done.set()

done, count = threading.Event(), 0
if {busy}:
    threading.Thread(target=waits).start()
    while not done.is_set():
        count += 0.5 == 1.5 - 1.0
    print("ended", count > 0)
else:
    print("ended", input())
"""


@pytest.mark.slow
@pytest.mark.parametrize("busy", [False, True])
def test_an_attacher_that_is_killed_at_any_step_leaves_the_program_as_it_was(
    cpython: harness.Interpreter, tmp_path: Path, busy: bool
) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    with running(cpython, LONG.format(busy=busy), tmp_path) as one:
        for step in range(1, 200):
            inject = f"inject=ptrace:signal=KILL:when={step}"
            words = ["strace", "-f", "-o", "/dev/null", "-e", "trace=ptrace", "-e", inject]
            detach = [str(harness.COMMAND), "detach", str(one.process.pid)]
            done = harness.run([*words, *detach], tmp_path)
            assert one.process.poll() is None, f"the program ended at step {step}"
            if done.status != -signal.SIGKILL:
                # All steps were done before the next one.
                assert "is not recorded" in done.err
                break
        assert step > 20
        ended = one.end("line\n").ok()
    assert ended.out.startswith("ended")
    assert ended.err == ""


@pytest.mark.launcher
def test_what_cannot_be_attached_to_is_refused_in_one_line(
    cpython: harness.Interpreter, tmp_path: Path
) -> None:
    def refusal(pid: int | str, *options: str) -> str:
        done = harness.run([str(harness.COMMAND), "attach", str(pid), *options], tmp_path)
        assert done.status in (1, 2) and done.out == "" and done.err.count("\n") == 1
        return done.err

    assert "there is no process 4999999" in refusal(4999999)
    assert "invalid value" in refusal("x")
    other = subprocess.Popen(["sleep", "600"])
    try:
        assert "runs no CPython" in refusal(other.pid)
        assert "is not ready: start it with NTHBYTE=ready" in refusal(other.pid, "--method", "ready")
    finally:
        other.kill()
    # Killed, and nobody has waited for it.
    assert "zombie" in refusal(other.pid)
    other.wait()
    with running(cpython, "print(input())", tmp_path) as one:
        one.process.send_signal(signal.SIGSTOP)
        assert "is stopped: let it go on with kill -CONT" in refusal(one.process.pid, "--timeout", "0.2")
        one.process.send_signal(signal.SIGCONT)
        assert "does not exist" in refusal(one.process.pid, "-o", "/proc/no/a.nthb")
        assert "write a time as 10s" in refusal(one.process.pid, "--for", "long")
        assert "is not a size" in refusal(one.process.pid, "--every", "often")
        done = one.end("line\n").ok()
    assert (done.out, done.err) == ("line\n", "")


def test_what_goes_wrong_inside_is_said_and_not_raised_in_the_program(
    cpython: harness.Interpreter, tmp_path: Path
) -> None:
    # What nthbyte calls when it is imported.
    code = f"import os; del os.register_at_fork\nprint('gone', flush=True)\n{GOES}{SITUATIONS['busy']}"
    with running(cpython, code, tmp_path) as one:
        assert one.line() == "gone"
        refused = one.nthbyte("attach")
        assert refused.status == 1 and "cannot import nthbyte: AttributeError" in refused.err
        ended = one.end("line\n").ok()
    assert (ended.out, ended.err) == ("end\n", "")


DESCRIPTORS = "\nimport os; print(os.listdir('/tmp'), len(os.listdir('/proc/self/fd')), flush=True)\n"


@pytest.mark.launcher
@pytest.mark.parametrize("mode", ["rw", "ro", "noexec"])
def test_a_container_needs_nothing_of_nthbyte_in_it(
    cpython: harness.Interpreter, tmp_path: Path, mode: str
) -> None:
    code = f"print('here', flush=True)\n{DESCRIPTORS}{WORKS}{DESCRIPTORS}input()"
    one = in_container(cpython, code, tmp_path, [harness.SITE, tmp_path], mode)
    before = one.line()
    attached = one.attach("-o", "a.nthb", "--every", "4KiB")
    assert attached.stderr is not None
    assert f"recording process {one.number} until Ctrl-C, into a.nthb; " in attached.stderr.readline()
    one.say()
    assert one.line() == "worked"
    attached.send_signal(signal.SIGINT)
    assert "samples; see it with: nthbyte explain a.nthb\n" in attached.stderr.read()
    assert attached.wait() == 0
    # Once more, with what the first one has left.
    assert (
        "see it with: nthbyte explain b.nthb" in one.nthbyte("attach", "-o", "b.nthb", "--for", "0").ok().err
    )
    one.say()
    assert one.line() == "True"
    # Where nothing can be put, the package stays open, because nthbyte may import more of itself.
    names, number = before.split("] ")
    assert one.line() == f"{names}] {int(number) + (mode != 'rw')}"
    assert one.end("\n").status == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.nthb", "b.nthb"]
    assert harness.summary(tmp_path / "a.nthb", "--by", "function")["rows"][0]["name"] == "work"


# Has a child that works, too, and ends with it.
OF_NOBODY = f"""
import os, signal
os.setgroups([]), os.setgid(65534), os.setuid(65534)
{WORK}
print("changed", flush=True)
input()
child = os.fork()
work()
if not child:
    signal.pause()
print(child, flush=True)
input()
os.kill(child, signal.SIGKILL)
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.launcher
def test_root_has_the_profiles_of_another_users_process(cpython: harness.Interpreter, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    folders = [str(harness.SITE / "nthbyte"), os.path.dirname(cpython.path)]
    for folder in folders:
        if harness.run(["setpriv", "--reuid", "65534", "test", "-x", folder], tmp_path).status != 0:
            pytest.skip("another user cannot look into these folders")
    tmp_path.chmod(0o700)
    with running(cpython, OF_NOBODY, tmp_path) as one:
        assert one.line() == "changed"
        attached = one.attach("-o", "a.nthb", "--every", "4KiB")
        assert attached.stderr is not None
        assert "into a.nthb; " in attached.stderr.readline()
        one.say()
        child = one.line()
        [place] = Path("/tmp").glob(f".nthbyte-{one.number}-*")
        while "work" not in harness.rows_so_far(place / f"profile.{child}.nthb", "--by", "function"):
            time.sleep(0.1)
        attached.send_signal(signal.SIGINT)
        assert "; see it with: nthbyte explain a.nthb\n" in attached.stderr.read()
        assert attached.wait() == 0
        assert one.end("\n").ok().out == "9\n"
    names = ["a.nthb", f"a.{child}.nthb"]
    assert {path.name for path in tmp_path.glob("*.nthb")} == set(names)
    for name in names:
        assert (tmp_path / name).stat().st_uid == 0
        assert harness.summary(tmp_path / name, "--by", "function")["rows"][0]["name"] == "work"
    assert not list(Path("/tmp").glob(f".nthbyte-{one.number}-*"))


# CPython says on stderr what it forgets while this is imported.
BEGUN = "import asyncio\nprint('begun', flush=True)\n"


@pytest.mark.parametrize("name", ["read", "busy", "sleep", "asyncio"])
def test_the_interpreters_own_way_is_there_too(
    cpython: harness.Interpreter, tmp_path: Path, name: str
) -> None:
    with running(cpython, BEGUN + GOES + SITUATIONS[name], tmp_path) as one:
        assert one.line() == "begun"
        done = one.nthbyte("attach", "--method", "remote-exec", "-o", "a.nthb", "--for", "0")
        if cpython.python_version < (3, 14):
            assert done.status == 1 and "has no sys.remote_exec: leave --method out" in done.err
        else:
            assert "see it with: nthbyte explain a.nthb" in done.ok().err
        ended = one.end("line\n").ok()
    assert ended.err == ""
    assert not list(Path("/tmp").glob(f".nthbyte-{one.number}-*"))


# The main thread forgets a request in code that has no builtins, and says so to the hook.
FORGETS = f"""
import sys
forgotten = []
sys.unraisablehook = lambda what: forgotten.append(type(what.exc_value).__name__)
{GOES}
code = compile("for x in y: z = x", "code", "exec")
names = {{"__builtins__": {{}}, "y": range(50_000)}}
while goes() and not forgotten:
    exec(code, names)
while goes():
    str(0.5)
print(*set(forgotten))
"""


def test_a_request_that_the_interpreter_forgets_is_made_again(
    cpython: harness.Interpreter, tmp_path: Path
) -> None:
    if cpython.python_version < (3, 14):
        pytest.skip("there are no requests before 3.14")
    with running(cpython, FORGETS, tmp_path) as one:
        words = ("--method", "remote-exec", "-o", "a.nthb", "--for", "0", "--timeout", "5min")
        assert "see it with: nthbyte explain a.nthb" in one.nthbyte("attach", *words).ok().err
        assert one.end("line\n").ok().out in ("KeyError\n", "\n")


# A child of vfork opens a pipe that nobody reads: the kernel does not let go of its parent until somebody does.
HELD = """
import os
print("held", flush=True)
opens = (os.POSIX_SPAWN_OPEN, 1, "pipe", os.O_WRONLY, 0)
print(os.waitpid(os.posix_spawn("/bin/true", ["true"], os.environ, file_actions=[opens]), 0)[1])
print(input())
"""


def test_a_thread_that_cannot_be_stopped_is_not_held(cpython: harness.Interpreter, tmp_path: Path) -> None:
    if cpython.python_version < (3, 14):
        pytest.skip("the usual way gives up then")
    os.mkfifo(tmp_path / "pipe")
    with running(cpython, HELD, tmp_path) as one:
        assert one.line() == "held"
        attached = one.attach("--method", "remote-exec", "-o", "a.nthb", "--for", "0", "--timeout", "5min")
        for is_traced in (True, False):
            while ("TracerPid:\t0\n" in Path(f"/proc/{one.number}/status").read_text()) == is_traced:
                assert attached.poll() is None
        (tmp_path / "pipe").open().close()
        assert one.line() == "0"
        assert attached.wait() == 0
        one.end("line\n").ok()


@pytest.mark.launcher
def test_a_process_without_remote_exec_says_so(cpython: harness.Interpreter, tmp_path: Path) -> None:
    if cpython.python_version < (3, 14):
        pytest.skip("it is there since 3.14")
    with running(cpython, "print(input())", tmp_path, PYTHON_DISABLE_REMOTE_DEBUG="1") as one:
        refused = one.nthbyte("attach", "--method", "remote-exec")
        assert refused.status == 1 and "has sys.remote_exec switched off" in refused.err
        # The usual way does not need it.
        one.nthbyte("attach", "-o", "a.nthb", "--for", "0").ok()
        assert one.end("line\n").ok().out == "line\n"


# Forks a child that forks one, too; each works, and waits.
FORKS = f"""
import os, signal
{WORK}
def descend(depth):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        work()
        grandchild = descend(depth - 1) if depth else 0
        os.write(writer, f"{{os.getpid()}} {{grandchild}}".encode())
        signal.pause()
    return os.read(reader, 100).decode()

input()
print(descend(1), flush=True)
input()
"""


@pytest.mark.launcher
def test_what_ends_a_recording_ends_those_of_its_children(
    cpython: harness.Interpreter, tmp_path: Path
) -> None:
    """One that is stopped goes on being recorded, which is said."""
    with running(cpython, FORKS, tmp_path) as one:
        attached = one.attach("-o", "a.nthb", "--every", "4KiB")
        assert attached.stderr is not None
        attached.stderr.readline()
        one.say()
        child, grandchild, _ = map(int, one.line().split())
        for number in (child, grandchild):
            while "work" not in harness.rows_so_far(tmp_path / f"a.{number}.nthb", "--by", "function"):
                time.sleep(0.1)
        try:
            os.kill(grandchild, signal.SIGSTOP)
            ended = one.nthbyte("detach", "--timeout", "1").ok().err.splitlines()
            os.kill(grandchild, signal.SIGCONT)
            assert ended[0] == "nthbyte: 1 recording of its child processes is ended, too"
            assert ended[1].startswith(
                f"nthbyte: process {grandchild}, which it has started, is recorded on: "
            )
            assert ended[1].endswith(f"; end it with nthbyte detach {grandchild}")
            assert ended[2].endswith("see it with: nthbyte explain a.nthb")
            assert harness.summary(tmp_path / f"a.{child}.nthb")["complete"]
            # Its own child is a descendant of it, too.
            harness.run([str(harness.COMMAND), "detach", str(grandchild)], tmp_path).ok()
            assert harness.summary(tmp_path / f"a.{grandchild}.nthb")["complete"]
        finally:
            for number in (child, grandchild):
                os.kill(number, signal.SIGKILL)
        assert attached.wait() == 0
        one.end("\n").ok()


# A main thread in C code that keeps the interpreter's lock, so that no Python code runs: it computes
# until the first byte of a file is 1, and has written the second one before; or it waits for a byte.
IN_C = {
    "computes": (
        "collections.deque(itertools.chain(map(shared.__setitem__, (1,), (1,)), "
        "iter(functools.partial(shared.__getitem__, 0), 1)), maxlen=0)"
    ),
    "waits": "ctypes.PyDLL(None).read(0, ctypes.create_string_buffer(1), 1)",
}


@pytest.mark.launcher
@pytest.mark.parametrize("name", IN_C)
def test_c_code_that_keeps_the_lock_is_given_up_and_left_as_it_was(
    cpython: harness.Interpreter, tmp_path: Path, name: str
) -> None:
    shared = tmp_path / "shared"
    shared.write_bytes(b"\0\0")
    code = (
        "import collections, ctypes, functools, itertools, mmap\n"
        "with open('shared', 'r+b') as file: shared = mmap.mmap(file.fileno(), 2)\n"
        f"{IN_C[name]}; print('ended', flush=True); print(input())"
    )
    with running(cpython, code, tmp_path) as one:
        kernel = Path(f"/proc/{one.number}/syscall")
        while (
            shared.read_bytes() != b"\0\1"
            if name == "computes"
            else not kernel.read_text().startswith("0 0x0 ")
        ):
            assert one.process.poll() is None
            time.sleep(0.05)
        maps = Path(f"/proc/{one.number}/maps")
        before = maps.read_text().count("\n")
        for _ in range(2):
            refused = one.nthbyte("attach", "-o", "a.nthb", "--for", "0", "--timeout", "0.5")
            assert refused.status == 1
            assert "C code that keeps the interpreter's lock, for 0.5 s: nothing was changed" in refused.err
        # Queued requests keep their pages.
        assert maps.read_text().count("\n") <= before + 4
        with shared.open("r+b") as file:
            file.write(b"\1")
        if name == "waits":
            one.say("")
        assert one.line() == "ended"
        one.nthbyte("attach", "-o", "a.nthb", "--for", "0", "--timeout", "5min").ok()
        done = one.end("line\n").ok()
    assert (done.out, done.err) == ("line\n", "")
