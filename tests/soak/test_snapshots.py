"""Many snapshots of who holds what, in a program with threads that allocate, fork and end: it notices nothing."""

from __future__ import annotations

from pathlib import Path

from harness import IS_ALL, Interpreter
from held import SNAPSHOTS_BETWEEN_THREADS, snapshots

# On PyPy, a copy runs Python for a third of a second.
COUNTS = {False: 500 if IS_ALL else 40, True: 100 if IS_ALL else 4}
# Only for a program that hangs: the machine may be full.
LONGEST = 3000.0

# Threads that allocate, fork and end, finalizers, and handlers of signals: copies of the process do nothing of that.
PROGRAM = (
    """
import gc, os, random, signal, sys, threading, time, nthbyte
ended, waited = [], []
signal.signal(signal.SIGCHLD, lambda *_: ended.append(1))
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
own = os.getpid()
stop = False

class Mourned:
    def __init__(self):
        self.cycle = self
    def __del__(self):
        if os.getpid() != own:
            # A child of the program may run this, too.
            with open("/proc/self/comm") as name:
                open(f"ran-in-{name.read().strip()}", "w").close()

os.register_at_fork(after_in_child=lambda: ended.append(2))

def work(number):
    kept, draw = {}, random.Random(number)
    while not stop:
        kept[draw.randrange(500)] = [str(draw.random()) for _ in range(draw.randrange(20))]
        Mourned()
        if number < 2 and draw.random() < 0.0005:
            child = os.fork()
            if not child:
                more = [str(draw.random()) for _ in range(draw.randrange(5000))]
                os._exit(0)
            waited.append(os.waitpid(child, 0)[0] == child)

"""
    + SNAPSHOTS_BETWEEN_THREADS
    + """\
assert gc.isenabled()
nthbyte.stop()
signal.setitimer(signal.ITIMER_REAL, 0)
try:
    print(os.waitpid(-1, 0))
except ChildProcessError:
    print("no child")
children = [open(f"/proc/self/task/{task}/children").read() for task in os.listdir("/proc/self/task")]
print("".join(children).split(), all(waited), 2 in ended, ended.count(1) <= len(waited))
print(os.path.exists("ran-in-nthbyte-holders"))
"""
)


def test_threads_and_forks_of_the_program_notice_nothing(interpreter: Interpreter, tmp_path: Path) -> None:
    count = COUNTS[interpreter.is_pypy]
    (tmp_path / "forks.py").write_text(PROGRAM)
    options = ("run", "-q", "--no-holders", "-o", "a.nthb")
    done = interpreter.nthbyte(*options, "forks.py", str(count), folder=tmp_path, timeout=LONGEST).ok()
    assert done.out == "no child\n[] True False True\nFalse\n"
    found = [one.why or one.outcome for one in snapshots(tmp_path / "a.nthb")]
    assert [why for why in found if "not finished" not in why] == count * ["complete"]
