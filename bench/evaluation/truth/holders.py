"""Holders of each kind with contents of random sizes, small and large ones mixed: ``holders.py SEED [let-go]``.

With ``let-go``, it lets go of one after the other, and prints from when to when that was.
"""

import array
import collections
import gc
import random
import sys
import time

import numpy

draw = random.Random(int(sys.argv[1]))


def sizes(least, most, mib):
    """Random sizes, as many small as large ones on a logarithmic scale, until they make up so many MiB."""
    left = mib * (1 << 20)
    while left > 0:
        size = int(least * (most / least) ** draw.random())
        left -= size
        yield size


def amount():
    """So many MiB for a holder."""
    return draw.uniform(2, 5)


def text(size):
    """A text of its own."""
    return chr(draw.randrange(97, 123)) * size


class Session:
    """Keeps its values in its attributes."""

    def __init__(self, number, size):
        self.number = number
        self.rows = [text(size // 4) for _ in range(draw.randint(1, 7))]
        self.payload = bytes(size)


class Slots:
    """The same, without a dictionary."""

    __slots__ = ("payload", "table")

    def __init__(self, size):
        self.payload = bytearray(size)
        self.table = {size: float(size)}


class Node:
    """Of a linked list."""

    def __init__(self, after, value):
        self.after, self.value = after, value


class Shop:
    """Has one in an attribute of the class, and one in an attribute."""


def handler(size):
    """A closure over two values."""
    body, more = text(size), [float(size)] * draw.randint(1, 200)
    return lambda: (body, more)


def views():
    """Each keeps the array that it belongs to."""
    for size in sizes(4_000, 200_000, 2 * amount()):
        yield numpy.zeros(size // 8)[:3]


registry = {number: text(size) for number, size in enumerate(sizes(16, 30_000, amount()))}
rows = [tuple(text(size // 3) for _ in range(3)) for size in sizes(30, 3_000, amount())]
Shop.handlers = [handler(size) for size in sizes(30, 10_000, amount())]
shop = Shop()
shop.sessions = [Session(number, size) for number, size in enumerate(sizes(30, 6_000, amount() / 2))]
slots = {Slots(size) for size in sizes(30, 5_000, amount())}
words = {
    f"word {number} {text(draw.randint(1, 150))}": number for number in range(draw.randint(15_000, 25_000))
}
recent = collections.deque(text(size) for size in sizes(30, 2_000, amount()))
buffers = [array.array("b", bytes(size)) for size in sizes(100, 60_000, 2 * amount())]
arrays = [numpy.zeros(size // 8) for size in sizes(100, 200_000, 2 * amount())]
heads = list(views())
head = None
for size in sizes(16, 500, amount()):
    head = Node(head, text(size))
del size
gc.collect()

if "let-go" in sys.argv:
    from nthbyte._agent import load

    start = load().clock_start()
    for (
        name
    ) in "registry rows Shop.handlers shop.sessions slots words recent buffers arrays heads head".split():
        gc.collect()
        began = time.monotonic_ns()
        exec(f"del {name}")
        gc.collect()
        print(name, began - start, time.monotonic_ns() - start)
