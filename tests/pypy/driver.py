"""Runs on PyPy: reads a JSON list of actions per line, executes it, and answers with a line of JSON.

A session's answer has its counts, and whether the interpreter's code is the same as before.
"""

import gc
import hashlib
import json
import os
import sys

import nthbyte

CODE = []
for line in open("/proc/self/maps"):
    if "libpypy" in line and "r-xp" in line:
        CODE.append([int(part, 16) for part in line.split()[0].split("-")])


def code_digest():
    """Returns a digest of the interpreter's machine code in memory."""
    digest = hashlib.sha256()
    with open("/proc/self/mem", "rb", 0) as memory:
        for start, end in CODE:
            memory.seek(start)
            digest.update(memory.read(end - start))
    return digest.hexdigest()


class Plain:
    """A class defined in Python."""

    def __init__(self, value):
        self.value = value


def make(kind, size, count):
    """Returns new objects. They differ, because the JIT allocates equal ones only once."""
    made = []
    for number in range(count):
        letter = chr(97 + number % 26)
        if kind == "bytes":
            made.append(letter.encode() * size)
        elif kind == "text":
            made.append(letter * size)
        elif kind == "list":
            made.append([None] * (size // 8))
        elif kind == "floats":
            made.append([1.0] * (size // 8))
        elif kind == "instance":
            made.append(Plain(number))
        else:
            made.append(bytearray(size))
    return made


def act(actions, folder):
    """Executes actions; returns the counts of each session."""
    kept, sessions, session = [], [], None
    for action in actions:
        what = action[0]
        if what == "make":
            _, kind, size, count, keep = action
            made = make(kind, size, count)
            if keep:
                kept.append(made)
            made = None
            if session is not None:
                session["known"] += 0 if kind == "instance" else (size & ~7) * count
                session["actions"] += count
        elif what == "drop":
            kept.clear()
        elif what == "collect":
            gc.collect()
        elif what == "pin":
            # Writing pins a young bytes object during the system call.
            with open(os.devnull, "wb", 0) as sink:
                for number in range(20):
                    sink.write(b"%d" % number * 100)
        elif what == "start" and session is None:
            _, period, fixed = action
            path = os.path.join(folder, f"{len(sessions)}.nthb")
            nthbyte.start(path, every=period, fixed=fixed, seed=1, native=False)
            session = {"path": path, "period": period, "fixed": fixed, "known": 0, "actions": 0}
        elif what == "stop" and session is not None:
            sessions.append(ended(session))
            session = None
    if session is not None:
        sessions.append(ended(session))
    return sessions


def ended(session):
    """Stops the session."""
    result = nthbyte.stop()
    return dict(session, samples=result.samples, lost=result.lost, bytes=result.bytes_allocated)


def main():
    before = code_digest()
    for line in sys.stdin:
        request = json.loads(line)
        sessions = act(request["actions"], request["folder"])
        print(json.dumps({"sessions": sessions, "restored": code_digest() == before}), flush=True)


main()
