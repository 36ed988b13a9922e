"""Nine programs that allocate many small objects, as CPython's issue 144319 describes them: ``objects.py NAME``.

The issue measures what huge pages are worth to CPython's own allocator. Garbage collection is off, as it is there.
"""

from __future__ import annotations

import gc
import random
import sys

MIXED_SIZES = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


def small_object_churn():
    """A queue of 200,000 small objects that as many others pass through."""
    queue = [bytearray(64) for _ in range(200_000)]
    for _ in range(200_000):
        queue.append(bytearray(64))
        queue.pop(0)


def bulk_small_alloc():
    """A million small objects, each touched once more."""
    live = [bytearray(48) for _ in range(1_000_000)]
    for each in live:
        each[0] = 1


def dict_churn():
    """Half a million dictionaries, one at a time."""
    for _ in range(500_000):
        short_lived = {"a": 1, "b": 2, "c": 3, "d": 4}
        del short_lived


def mixed_sizes():
    """Half a million objects of twelve sizes in turn."""
    return [bytearray(MIXED_SIZES[number % len(MIXED_SIZES)]) for number in range(500_000)]


def fragmentation():
    """Every second object is freed and allocated again."""
    live = [bytearray(128) for _ in range(500_000)]
    for number in range(0, len(live), 2):
        live[number] = None
    for number in range(0, len(live), 2):
        live[number] = bytearray(128)


def list_of_tuples():
    """A million tuples of three integers."""
    return [(number, number + 1, number + 2) for number in range(1_000_000)]


class Point:
    """Three coordinates."""

    __slots__ = ("x", "y", "z")

    def __init__(self, x, y, z):
        self.x, self.y, self.z = x, y, z


def class_instances():
    """Half a million instances with slots."""
    return [Point(number, number + 1, number + 2) for number in range(500_000)]


def arena_pressure():
    """Two million objects, in ten lists."""
    return [[bytearray(256) for _ in range(200_000)] for _ in range(10)]


def random_walk():
    """A million objects, visited in random order."""
    random.seed(42)
    live = [bytearray(64) for _ in range(1_000_000)]
    order = list(range(len(live)))
    random.shuffle(order)
    for number in order:
        live[number][0] = number & 255


PROGRAMS = {
    one.__name__: one
    for one in (
        small_object_churn,
        bulk_small_alloc,
        dict_churn,
        mixed_sizes,
        fragmentation,
        list_of_tuples,
        class_instances,
        arena_pressure,
        random_walk,
    )
}

if __name__ == "__main__":
    gc.disable()
    PROGRAMS[sys.argv[1]]()
