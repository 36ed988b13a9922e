"""Time samples on CPython: each thread by its own CPU clock.

The programs use up CPU time by a thread's own clock, so what share of the samples a function has does not depend on the
machine or its load. Bounds are six standard deviations of the binomial: less than one run in 10**8 is outside.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness import SPEND, Interpreter, firefox, report, summary
from shares import check_share, together

FUNCTIONS = """
def light():
    spend(0.3)

def heavy():
    spend(0.9)

light()
heavy()
"""

THREADS = """
import threading

def first():
    spend(0.2)

def second():
    spend(0.4)

def third():
    spend(0.6)

running = [threading.Thread(target=work, name=work.__name__) for work in (first, second, third)]
for one in running:
    one.start()
for one in running:
    one.join()
"""

# Threads that live for a few samples each.
SHORT_THREADS = """
import threading

def short():
    spend(0.05)

def main():
    spend(0.8)

for _ in range(16):
    one = threading.Thread(target=short)
    one.start()
    one.join()
main()
"""

FORK = """
import os

def parent():
    spend(0.4)

def child():
    keep = ["x" * n for n in range(2000)]
    spend(0.6)

pid = os.fork()
if pid == 0:
    child()
    raise SystemExit
parent()
print(pid, os.waitpid(pid, 0)[1])
"""

EXEC = """
import os, sys

spend(0.2)
os.execv(sys.executable, [sys.executable, "-c", "for n in range(3000000): pass\\nprint('well')"])
"""

# The program has handlers of its own, at a high rate, and sleeps and reads meanwhile.
SIGNALS = """
import os, select, signal, threading

counts = {signal.SIGPROF: 0, signal.SIGALRM: 0}

def handler(number, frame):
    counts[number] += 1
    [object() for _ in range(20)]

for number in counts:
    signal.signal(number, handler)
wakeup, written = os.pipe()
os.set_blocking(written, False)
signal.set_wakeup_fd(written, warn_on_full_buffer=False)
signal.setitimer(signal.ITIMER_PROF, 0.002, 0.002)
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)

def work():
    spend(0.5)

receiving, sending = os.pipe()
writer = threading.Thread(target=lambda: [os.write(sending, b"x" * 4096) for _ in range(200)])
writer.start()
received = sum(len(os.read(receiving, 4096)) for _ in range(200))
while received < 200 * 4096:
    received += len(os.read(receiving, 4096))
writer.join()
work()
before = time.monotonic()
time.sleep(0.2)
select.select([], [], [], 0.2)
assert time.monotonic() - before >= 0.4
signal.setitimer(signal.ITIMER_PROF, 0)
signal.setitimer(signal.ITIMER_REAL, 0)
assert received == 200 * 4096
assert all(counts.values()), counts
assert set(os.read(wakeup, 1 << 16)) <= set(counts), "a signal of nthbyte reached Python"
assert signal.getsignal(signal.SIGURG) is signal.SIG_DFL
print("well")
"""

# Two programs that take nthbyte's signal away, after it has been chosen and before.
RESET = """
import signal

for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_DFL)
spend(0.5)
"""

BLOCKED = """
import signal, threading

def blocked():
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    spend(0.5)

one = threading.Thread(target=blocked)
one.start()
one.join()
"""

WITH_GIL = """
spend(0.6)
"""

WITHOUT_GIL = """
import hashlib

end = time.thread_time() + 0.6
while time.thread_time() < end:
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 50_000)
"""

# Beside other programs, a thread that reads its CPU clock often loses the processor there, before the kernel's tick
# comes: the ticks would fall into the collections. So this program works without a look at the clock, and its pauses
# are random, for ticks may come as regularly as its rounds.
COLLECTOR = """
import gc, random

gc.disable()
keep = [[] for _ in range(200_000)]

def work(times):
    for _ in range(10_000 * times):
        pass

class Dying:
    def __del__(self): work(4)

def collect():
    dying = [Dying() for _ in range(2)]
    for one in dying:
        one.self = one
    del dying, one
    gc.collect()

def measured():
    before = time.thread_time()
    work(120)
    return time.thread_time() - before

start = time.thread_time()
measuring = 0
pauses = random.choices(range(40), k=100)
for number, pause in enumerate(pauses):
    # Now and then, because the processor's speed may change.
    if number % 10 == 5:
        measuring += measured()
    collect()
    work(pause)
whole = time.thread_time() - start
each = measuring / 1200
finalizing = 800 * each
print(whole - measuring - sum(pauses) * each - finalizing, finalizing, whole)
"""

# Frames are pushed and popped all the time, of code that is made and freed all the time.
FRAMES = """
import sys, threading

sys.setswitchinterval(1e-5)

def generated(n):
    for i in range(n):
        yield i

class Made:
    def __init__(self, n):
        self.n = n

    def deep(self, n):
        return self.deep(n - 1) if n else Made(1).n

def raising():
    try:
        raise ValueError
    except ValueError:
        pass

def work(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(generated(30))
        Made(1).deep(50)
        raising()
        sorted(range(20), key=lambda n: -n)
        made = {}
        exec("def made(n):\\n    return [n for n in range(n)]", made)
        made["made"](20)
        eval("sum(n for n in range(30))")

running = [threading.Thread(target=work, args=(0.5,)) for _ in range(3)]
for one in running:
    one.start()
for one in running:
    one.join()
"""
FRAMES_MADE = set(
    "spend generated Made Made.__init__ Made.deep raising work work.<locals>.<lambda> "
    "<module> <listcomp> <genexpr> made made.<locals>.<listcomp>".split()
)

SESSIONS = """
import nthbyte, os, threading

def busy():
    while not done:
        sum(range(100))

def timers():
    try:
        with open("/proc/self/timers") as file:
            return file.read().count("ID:")
    except OSError:
        return 0

done = False
others = [threading.Thread(target=busy, daemon=True) for _ in range(3)]
for one in others:
    one.start()
for at in range(60):
    nthbyte.start("out.nthb", force=True, every="1TiB", cpu=10_000)
    spend(0.02)
    nthbyte.stop()
    assert timers() == 0
    if at == 10:
        files = len(os.listdir("/proc/self/fd"))
assert len(os.listdir("/proc/self/fd")) <= files
done = True
for one in others:
    one.join()
print("well")
"""

# A thread that the interpreter does not wait for.
DAEMON = """
import threading

threading.Thread(target=lambda: [sum(range(1000)) for _ in iter(int, 1)], daemon=True).start()
spend(0.3)
"""

INTERPRETERS = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
code = '''
import time
def inside():
    end = time.thread_time() + 0.6
    while time.thread_time() < end:
        pass
inside()
'''
other = interpreters.create()
for _ in range(2):
    assert interpreters.run_string(other, code) is None
interpreters.destroy(other)
"""


def profile(
    cpython: Interpreter, folder: Path, program: str, *options: str, flags: tuple[str, ...] = ()
) -> tuple[Any, str]:
    """Runs a program with time samples. Returns the figures of its time samples, and its output."""
    (folder / "app.py").write_text(SPEND + program)
    words = ["run", "-q", "-f", "--cpu", *options, "-o", "out.nthb", "app.py"]
    done = cpython.nthbyte(*words, folder=folder, flags=flags).ok()
    return summary(folder / "out.nthb", "--top", "10000")["time"], done.out


def samples(time: Any, name: str) -> int:
    """Returns the number of samples in a function and in what it called."""
    rows = [row["total_samples"] for row in time["rows"] if row["name"] == name]
    return sum(rows)


def test_functions_have_their_shares(cpython: Interpreter, tmp_path: Path) -> None:
    for _ in range(5):
        time, _ = profile(cpython, tmp_path, FUNCTIONS)
        light, heavy = samples(time, "light"), samples(time, "heavy")
        assert samples(time, "spend") == light + heavy
        check_share(light, 0.3 / 1.2, light + heavy, together=together(tmp_path / "out.nthb"))
        # The samples stand for the time that was used, not only for its shares.
        whole = 1.2 * time["hz"]
        assert abs(light + heavy + time["lost"] - whole) <= 0.1 * whole + 3
        # On a machine that stops the program for long, timers expire several times before a signal arrives.
        if time["lost"] <= 0.2 * whole:
            break
    else:
        pytest.fail(f"{time['lost']} of {whole:.0f} samples were lost, each time")


def test_threads_have_their_shares(cpython: Interpreter, tmp_path: Path) -> None:
    time, _ = profile(cpython, tmp_path, THREADS)
    counts = [samples(time, name) for name in ("first", "second", "third")]
    several = together(tmp_path / "out.nthb")
    for count, seconds in zip(counts, (0.2, 0.4, 0.6), strict=True):
        # On a busy machine, a thread is found late.
        check_share(count, seconds / 1.2, sum(counts), together=several, lost=time["lost"])
    names = [thread["name"] for thread in firefox(tmp_path / "out.nthb")["threads"]]
    assert sum(name.startswith("CPU · ") for name in names) >= 3, names


def test_short_threads_are_not_missed(cpython: Interpreter, tmp_path: Path) -> None:
    time, _ = profile(cpython, tmp_path, SHORT_THREADS)
    short, main = samples(time, "short"), samples(time, "main")
    # Each thread starts at a random point of its period. A few end before they are found, or before their last signals.
    assert main / 2 <= short + time["lost"]
    assert main / 4 <= short <= 2 * main


def test_a_child_has_timers_of_its_own(cpython: Interpreter, tmp_path: Path) -> None:
    time, out = profile(cpython, tmp_path, FORK, "--every", "16KiB")
    pid, status = out.split()
    assert status == "0"
    assert samples(time, "parent") + time["lost"] >= 0.2 * time["hz"]
    assert samples(time, "child") == 0
    child = summary(tmp_path / f"out.{pid}.nthb")["time"]
    assert samples(child, "child") + child["lost"] >= 0.3 * time["hz"]
    assert samples(child, "parent") == 0


def test_another_program_takes_the_place(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(SPEND + EXEC)
    done = cpython.nthbyte("run", "-q", "--cpu", "-o", "out.nthb", "app.py", folder=tmp_path).ok()
    assert done.out == "well\n"


def test_the_programs_own_signals(cpython: Interpreter, tmp_path: Path) -> None:
    time, out = profile(cpython, tmp_path, SIGNALS, flags=("-X", "faulthandler"))
    assert out == "well\n"
    assert samples(time, "work") + time["lost"] >= 0.25 * time["hz"]


def test_a_program_that_resets_all_signals(cpython: Interpreter, tmp_path: Path) -> None:
    time, _ = profile(cpython, tmp_path, RESET)
    assert samples(time, "spend") == 0
    assert time["lost"] >= 0.3 * time["hz"]


def test_a_thread_that_blocks_all_signals(cpython: Interpreter, tmp_path: Path) -> None:
    time, _ = profile(cpython, tmp_path, BLOCKED)
    assert samples(time, "blocked") <= 5
    assert time["lost"] >= 0.3 * time["hz"]


def test_the_gil(cpython: Interpreter, tmp_path: Path) -> None:
    time, _ = profile(cpython, tmp_path, WITH_GIL)
    assert time["gil_held"] > 0.9
    time, _ = profile(cpython, tmp_path, WITHOUT_GIL)
    assert time["gil_held"] < 0.3
    shown = report("summary", "--time", "out.nthb", folder=tmp_path).ok().out
    assert "; GIL held in " in shown


def test_the_collector(cpython: Interpreter, tmp_path: Path) -> None:
    time, out = profile(cpython, tmp_path, COLLECTOR)
    collecting, finalizing, whole = map(float, out.split())
    collector = "collection of generation 2"
    own = sum(row["samples"] for row in time["rows"] if row["name"] == collector)
    all_samples = samples(time, "<module>")
    several = together(tmp_path / "out.nthb")
    check_share(own, collecting / whole, all_samples, together=several)
    finalizers = samples(time, "Dying.__del__")
    check_share(finalizers, finalizing / whole, all_samples, together=several)
    # A finalizer runs inside of the collection that calls it.
    assert samples(time, collector) == own + finalizers
    tree = report("tree", "--time", "out.nthb", folder=tmp_path).ok().out
    assert collector in tree


def test_changing_frames(cpython: Interpreter, tmp_path: Path) -> None:
    # Samples are lost, and counted, when a busy machine lets the writer thread wait. Frames that change lose few.
    for _ in range(10):
        time, _ = profile(cpython, tmp_path, FRAMES, "--every", "64KiB")
        if time["lost"] <= 0.2 * time["samples"]:
            break
    own = {row["name"] for row in time["rows"] if row["file"] == "app.py" or row["file"].endswith("/app.py")}
    assert own <= FRAMES_MADE, own - FRAMES_MADE
    made = {row["name"] for row in time["rows"] if row["file"] == "<string>"}
    assert made <= FRAMES_MADE, made - FRAMES_MADE
    assert samples(time, "work") >= 0.8 * 1.5 * time["hz"] - time["lost"]
    assert time["lost"] <= 0.2 * time["samples"]


@pytest.mark.slow
def test_many_sessions(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(SPEND + SESSIONS)
    assert cpython.python("app.py", folder=tmp_path).ok().out == "well\n"


def test_a_thread_at_the_end(cpython: Interpreter, tmp_path: Path) -> None:
    time, _ = profile(cpython, tmp_path, DAEMON)
    assert samples(time, "spend") > 0


def test_other_interpreters(cpython: Interpreter, tmp_path: Path) -> None:
    time, _ = profile(cpython, tmp_path, INTERPRETERS)
    assert samples(time, "inside") + time["lost"] >= 0.6 * time["hz"]


@pytest.mark.launcher
@pytest.mark.parametrize("options", [["--cpu"], ["--cpu", "100"], ["--cpu=100"]], ids=" ".join)
def test_the_option(options: list[str], cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import sys; print(sys.argv)")
    words = ["run", "-q", *options, "-o", "out.nthb", "app.py", "--cpu", "7"]
    done = cpython.nthbyte(*words, folder=tmp_path).ok()
    assert done.out.strip() == "['app.py', '--cpu', '7']"
    hz = summary(tmp_path / "out.nthb")["time"]["hz"]
    assert hz == 100 if options != ["--cpu"] else 100 <= hz <= 1000
