"""Functions that the agent runs to examine the interpreter before the first session."""

# Each comprehension and each call allocates in a different way.
# ruff: noqa: C400

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Subject:
    """A class whose name is not its qualified name, with some attributes."""

    __qualname__ = "subjects.Subject"

    def __init__(self) -> None:
        self.first = "one"
        self.second = "two"


def subjects(callback: "Any") -> "Any":
    """Calls back from a generator, and returns an instance.

    The agent compares its own reads of both with the interpreter's results (``verify/``). The callback is the first
    variable of this function and of the generator.
    """

    def calling(callback: "Any") -> "Any":
        yield callback()

    for _ in calling(callback):
        pass
    return _Subject()


def operations() -> "dict[str, Any]":
    """Creates lists, sets and arrays in all ways that allocate: small ones, and ones that grow.

    The agent observes the calls to find the allocation sites in CPython (``sampling/allocation_sites.rs``).

    The sets are large enough to have their own tables. The instances are of a class that every interpreter has,
    because a new class would leave cyclic garbage.
    """
    lists: Any = ()
    sets: Any = ()
    arrays: Any = ()
    blocks: Any = ()
    for r in range(1), range(20):
        a = []
        for i in r:
            a.append(i)
        b: list[int] = []
        b.extend(i for i in r)
        c = a[:]
        c.insert(0, 1)
        d = a[:]
        d += r
        e = a * 2
        del e[1:]
        f = [*a, 1]
        f[1:1] = a
        g = a[:]
        while len(g) > 3:
            g.pop()
        lists += (a, b, c, d, e, f, g, [i for i in r], list(a), list(r), list(i for i in r))
        lists += (a[1:], a + b, a * 3, a.copy(), [a], [a, b, c, d, e, f, g], sorted(r), [*r], [*a, *b])
        words = len(r)
        lists += (("x " * words).split(), ("x-" * words).split("-"), ("x\n" * words).splitlines())
        s = set()
        for i in r:
            s.add(i)
        u = set(a)
        u.update(range(40))
        sets += (s, u, set(r), s | u, s & u, s.copy(), u.copy(), frozenset(r), {i for i in r})
        x = bytearray(r)
        x.extend(b"abc")
        y = bytearray()
        for i in r:
            y.append(i)
        z = bytearray(b"abc")
        z += bytes(40)
        arrays += (x, y, z, bytearray(20), bytearray(b"abc"), x[1:], x + y)
    if "_collections" in sys.modules:
        deque = sys.modules["_collections"].deque
        v = deque(range(70))
        w = deque()
        for i in range(70):
            w.append(i)
        blocks += (deque(), v, w)
    instances = tuple(type(sys.__spec__)("a", None) for i in range(4))
    return {"lists": lists, "sets": sets, "arrays": arrays, "blocks": blocks, "instances": instances}
