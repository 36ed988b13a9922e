"""What outlives ``exec`` is what it would be without nthbyte: docs/internals/exec.md has the list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness import IS_ALL, SPEND, Interpreter

# The new program: prints what it has got from the one before.
NEW = """
import ctypes, json, os, resource, signal

libc = ctypes.CDLL(None)

def status(*names):
    lines = open("/proc/self/status").read().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines) if name in names}

def asked(option):
    answer = ctypes.c_int()
    return [libc.prctl(option, ctypes.byref(answer), 0, 0, 0), answer.value]

def text(name):
    try:
        return open(name).read()
    except OSError as error:
        return str(error)

PDEATHSIG, CHILD_SUBREAPER = 2, 37
DUMPABLE, KEEPCAPS, SECUREBITS, TIMERSLACK, MCE_KILL, NO_NEW_PRIVS, THP_DISABLE = 3, 7, 27, 30, 34, 39, 42
found = {
    "signals": status("SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt"),
    "interval timers": [signal.getitimer(which) for which in range(3)],
    "timers": text("/proc/self/timers"),
    "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if "RLIMIT_" in name},
    "prctl": {
        option: libc.prctl(option, 0, 0, 0, 0)
        for option in (DUMPABLE, KEEPCAPS, SECUREBITS, TIMERSLACK, MCE_KILL, NO_NEW_PRIVS, THP_DISABLE)
    },
    "prctl with a place": {option: asked(option) for option in (PDEATHSIG, CHILD_SUBREAPER)},
    "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")),
    "environment": dict(os.environ),
    "seccomp": status("Seccomp", "Seccomp_filters"),
    "threads": status("Threads", "Cpus_allowed"),
    "scheduler": [os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)],
    "others": [os.umask(0), os.getcwd(), os.getpgrp() == os.getpid(), text("/proc/self/coredump_filter")],
    "personality": text("/proc/self/personality"),
    "oom": text("/proc/self/oom_score_adj"),
}
print(json.dumps(found), flush=True)

# A signal that is still on its way, or the timer of the program before, ends this one.
end = os.times().user + 0.3
while os.times().user < end:
    pass
"""

OLD = (
    SPEND
    + """
import ctypes, os, sys, threading
kept = [bytes(1000) for _ in range(5000)]
spend(0.2)
words = [sys.executable, "-S", "new.py"]

def native(libc=ctypes.CDLL(None)):
    places = (ctypes.c_char_p * 4)(*(word.encode() for word in words), None)
    libc.execv(places[0], places)

def in_a_thread():
    thread = threading.Thread(target=native)
    thread.start()
    thread.join()

{how}
"""
)

WAYS = {
    "os.execv": "os.execv(words[0], words)",
    "os.execvpe": "os.execvpe(words[0], words, os.environ)",
    "native": "native()",
    "native, in a thread": "in_a_thread()",
}


# Each way with one of the options; `make test-all` has each with both. The way decides what of the agent runs before
# the new program, the option whether there are timers to end.
OPTIONS: dict[str, tuple[str, ...]] = {"": (), "cpu": ("--cpu",)}
CASES = (
    [(how, option) for how in WAYS for option in OPTIONS]
    if IS_ALL
    else [("os.execv", "cpu"), ("os.execvpe", ""), ("native", ""), ("native, in a thread", "cpu")]
)


@pytest.mark.parametrize(
    ("how", "options"), [(how, OPTIONS[one]) for how, one in CASES], ids=map("-".join, CASES)
)
def test_the_new_program_gets_what_it_would_get(
    how: str, options: tuple[str, ...], interpreter: Interpreter, tmp_path: Path
) -> None:
    (tmp_path / "new.py").write_text(NEW)
    (tmp_path / "old.py").write_text(OLD.format(how=WAYS[how]))

    def got(*words: str) -> Any:
        return json.loads(interpreter.python(*words, "old.py", folder=tmp_path).ok().out)

    plain = got()
    recorded = got("-m", "nthbyte", "run", "-q", "-f", *options, "-o", "out.nthb")
    # With it, the new program may join the session.
    del recorded["environment"]["NTHBYTE_JOIN"]
    assert recorded == plain
