"""Allocates as fast as it can: ``two_alive.py integers|objects|fields LOOPS``, or ``two_alive.py size integers|objects``.

Two objects are alive at any time, so that no optimiser removes an allocation: the program of "How fast can the RPython GC
allocate?". It uses integers where instances are much larger than their one field.
"""

from __future__ import annotations

import sys


class Object:
    """One field, which may stay unset."""

    __slots__ = ("i",)


def integers(loops):
    """An integer is its own field."""
    last = before = None
    for number in range(loops):
        before = last
        last = number
    return before, last


def objects(loops):
    """Leaves the field unset."""
    last = before = None
    for _ in range(loops):
        before = last
        last = Object()
    return before, last


def fields(loops):
    """Sets the field, to an integer that is not allocated."""
    last = before = None
    for _ in range(loops):
        before = last
        last = Object()
        last.i = 1
    return before, last


def size(what):
    """Bytes of one object, with the header of the collector. PyPy does not say: an integer has 16."""
    if sys.implementation.name == "pypy":
        return 16
    return sys.getsizeof(1000 if what == "integers" else Object())


if __name__ == "__main__":
    if sys.argv[1] == "size":
        print(size(sys.argv[2]))
    else:
        globals()[sys.argv[1]](int(sys.argv[2]))
