"""Snapshots of who holds what, as the reader of docs/format.md sees them, and a program whose holders are known."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from harness import REPOSITORY, Interpreter, report

READER = REPOSITORY / "crates/profile/tests/read_format.py"

# How a path names a reference, by its number in the file; None is left out.
LINKS = ("?", ".{}", "[{}]", "[{}]", "local {}", "closure {}", None, "class", None, "key")

# Parts of programs that hold texts made by ``text(size, number)``: that function and an attribute; closures and slots;
# a linked list and a set; a suspended generator and the dictionary of an instance.
REGISTRY = """\
def text(size, i):
    return ("%08d" % i) * (size // 8)

def texts(i, count=4):
    return [text(400, i + k) for k in range(count)]

class Session:
    def __init__(self, i):
        self.data = {"cart": texts(i)}

class Registry:
    pass

registry = Registry()
registry.entries = {i: Session(i) for i in range(400)}

"""
HANDLERS = """\
def make_handler(i):
    body = texts(i)
    return lambda: body

class Bus:
    handlers = [make_handler(i) for i in range(400)]

class Model:
    __slots__ = ("pk", "body")
    def __init__(self, pk):
        self.pk, self.body = pk, text(1200, pk)
models = [Model(i) for i in range(400)]
"""
LINKED = """
class Node:
    def __init__(self, next, value):
        self.next, self.value = next, value
head = None
for i in range(3000): head = Node(head, text(160, i))

names = {text(480, i) for i in range(1000)}
"""
SUSPENDED = """
def numbers():
    buffer = [text(480, i) for i in range(1000)]
    yield 1
    print(len(buffer))
generator = numbers()
next(generator)

class Config: pass
config = Config()
config.__dict__["rows"] = tuple([text(480, i) for i in range(1000)])
"""

# Takes as many snapshots as the program is told, while threads run ``work``, and others begin and end.
SNAPSHOTS_BETWEEN_THREADS = """
def begin():
    while not stop:
        brief = threading.Thread(target=lambda: [object() for _ in range(1000)])
        brief.start()
        brief.join()

threads = [threading.Thread(target=work, args=(number,)) for number in range(7)] + [threading.Thread(target=begin)]
for thread in threads: thread.start()
for _ in range(int(sys.argv[1])):
    while (why := nthbyte.snapshot(force=True)) == "the one before is not finished":
        time.sleep(0.01)
    assert why is None, why
stop = True
for thread in threads: thread.join()
"""

# What the program below holds, in bytes of its texts, by who holds it.
SERVICE = (
    """
import asyncio, collections, functools, gc, logging, threading, weakref, nthbyte

def text(size, i):
    return ("%08d" % i) * (size // 8)

class Session:
    def __init__(self, i):
        self.data = {"cart": [text(400, i + k) for k in range(4)]}

class Registry:
    def __init__(self):
        self.entries = {i: Session(i) for i in range(400)}

registry = Registry()

@functools.lru_cache(maxsize=None)
def render(i):
    return text(800, i)

for i in range(600): render(i)

def make_handler(i):
    body = [text(400, i + k) for k in range(4)]
    return lambda: body

class Bus:
    handlers = collections.defaultdict(list)

for i in range(400): Bus.handlers["order"].append(make_handler(i))

class Model:
    __slots__ = ("pk", "body")
    def __init__(self, pk):
        self.pk, self.body = pk, text(1200, pk)

by_key, recent = {}, collections.deque()
for i in range(400):
    by_key[Model, i] = Model(i)
    recent.append(by_key[Model, i])

class Keeps(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []
    def emit(self, record):
        self.records.append(record)

log = logging.getLogger("app")
log.addHandler(Keeps())
log.propagate = False
for i in range(400): log.warning("%s", text(800, i))

errors = []
def risky(i):
    payload = [text(400, i + k) for k in range(4)]
    raise ValueError(i)
for i in range(300):
    try: risky(i)
    except ValueError as error: errors.append(error)

"""
    + LINKED
    + SUSPENDED
    + """
def thread():
    scratch = [text(480, i) for i in range(1000)]
    ready.set()
    go.wait()
    print(len(scratch))
ready, go = threading.Event(), threading.Event()
threading.Thread(target=thread, name="worker").start()
ready.wait()

class Any: pass
inline, split, combined = Any(), Any(), Any()
inline.values = [text(480, i) for i in range(1000)]
split.values = [text(480, i) for i in range(1000)]
vars(split)["more"] = 1
combined.__dict__ = {3 * "x": 1, "values": [text(480, i) for i in range(1000)]}

class Slots:
    __slots__ = ("values",)
slots = Slots()
slots.values = [text(480, i) for i in range(1000)]

local = threading.local()
local.buffer = [text(480, i) for i in range(1000)]

# A weak reference holds nothing.
class Big(list): pass
strong = [Big(text(480, 10 * i + k) for k in range(10)) for i in range(100)]
weak = weakref.WeakValueDictionary(enumerate(strong))
refs = [weakref.ref(big) for big in strong]

async def waits(event, i):
    state = [text(400, i + k) for k in range(4)]
    await event.wait()
    print(len(state), end="")

async def main():
    event = asyncio.Event()
    tasks = [asyncio.ensure_future(waits(event, i)) for i in range(300)]
    await asyncio.sleep(0)
    gc.collect()
    print(nthbyte.snapshot(force=True))
    event.set()
    await asyncio.gather(*tasks)

asyncio.run(main())
go.set()
"""
)


class Snapshot:
    """A snapshot, as the reader that was written from docs/format.md sees it."""

    def __init__(self, line: str):
        words = iter(line.split(" ")[1:])
        take = lambda count: [next(words) for _ in range(count)]  # noqa: E731
        text = lambda word: bytes.fromhex(word[1:]).decode()  # noqa: E731
        _, _, self.reason, pause, self.outcome, why, objects, _, period = take(9)
        self.why, self.pause, self.objects = text(why), int(pause), int(objects)
        self.nodes: list[tuple[int, int, str, int, str, str]] = [(0, 0, "", 0, "", "")]
        self.others: set[int] = set()
        self.held: list[float] = []
        self.recorded = 0
        self.nobody = 0.0
        self.sizes: Counter[int] = Counter()
        for what in words:
            if what == "node":
                kind, _, parent, dominator, name, link, by, length, _ = take(9)
                node = (int(parent), int(dominator), text(name), int(link), text(by), length)
                self.nodes.append((*node[:2], f"{kind} {node[2]}", *node[3:]))
            elif what == "other":
                node, _ = take(2)
                self.others.add(int(node))
            else:
                self.held = self.held or [0.0] * len(self.nodes)
                by, _, size, is_drawn, _, recorded = take(6)
                self.sizes[int(size)] += 1
                self.recorded += recorded != "-"
                if is_drawn == "1":
                    weight = int(size) / -math.expm1(-int(size) / max(int(period), 1))
                    if by.isdecimal():
                        self.held[int(by)] += weight
                    else:
                        self.nobody += weight
        for node in range(len(self.nodes) - 1, 0, -1):
            self.held[self.nodes[node][1]] += self.held[node]

    def path(self, node: int) -> str:
        """The references that lead to a node, from the module ``__main__``, a class or a thread on."""
        steps = []
        while node:
            parent, _, name, link, by, _ = self.nodes[node]
            step = LINKS[link]
            if not parent:
                kind, _, name = name.partition(" ")
                if (kind, name) == ("1", "__main__"):
                    name = ""
                steps.append("thread call" if kind == "6" else name)
            elif step is not None:
                steps.append(step.format(by))
            node = parent
        joined = " ".join(reversed(steps))
        return re.sub(r" (?=[.\[])", "", joined).strip()

    def amounts(self) -> dict[str, float]:
        """What each path holds, in KiB."""
        found: dict[str, float] = {}
        for node in range(1, len(self.nodes)):
            path = self.path(node)
            found[path] = max(found.get(path, 0), self.held[node] / 1024)
        return found


def snapshots(profile: Path) -> list[Snapshot]:
    read = subprocess.run([sys.executable, READER, profile], capture_output=True, text=True, check=True)
    return [Snapshot(line) for line in read.stdout.splitlines() if line.startswith("snapshot ")]


def of_service(interpreter: Interpreter, folder: Path, held: dict[str, tuple[int, int]]) -> Snapshot:
    """Returns the snapshot of a run of :data:`SERVICE`. Each holder has the least and the most of ``held``, in KiB."""
    (folder / "service.py").write_text(SERVICE)
    done = interpreter.nthbyte("run", "--no-holders", "-o", "a.nthb", "service.py", folder=folder).ok()
    assert done.out.splitlines()[0] == "None"
    (found,) = snapshots(folder / "a.nthb")
    assert (found.reason, found.outcome, found.why) == ("2", "complete", "")
    amounts = found.amounts()
    wrong = {
        path: round(amounts.get(path, 0))
        for path, (least, most) in held.items()
        if not 0.75 * least <= amounts.get(path, 0) <= 1.3 * most
    }
    assert not wrong, {path: round(amount) for path, amount in amounts.items() if amount > 100}
    return found


def rows(profile: Path) -> list[dict[str, Any]]:
    """The rows of `nthbyte holders` for each snapshot that the program has asked for, by holder."""
    found = []
    read = subprocess.run([sys.executable, READER, profile], capture_output=True, text=True, check=True)
    for line in read.stdout.splitlines():
        words = line.split(" ")
        if words[0] == "snapshot" and words[3] == "2" and words[5] == "complete":
            at = f"{int(words[2]) / 1e9:.9f}s"
            shown = report("holders", "--json", "--at", at, profile.name, folder=profile.parent).ok()
            found.append({row["holder"]: row for row in json.loads(shown.out)["holders"]})
    return found
