"""What the variables of a notebook hold: a walk over the objects that each of them leads to.

Sizes are ``sys.getsizeof``'s, which NumPy answers with its buffers. A module, a class and a function belong to no
variable. The walk ends after a number of objects, and says so.
"""

from __future__ import annotations

import gc
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Callable

# Objects that the walk looks at: some seconds.
_MOST_OBJECTS = 3_000_000

_LEFT_OUT = (
    types.ModuleType,
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.FrameType,
    types.CodeType,
)

# The owner of what several variables lead to.
_SHARED = -1


class Holding:
    """What a variable leads to."""

    def __init__(self, name: str, value: object):
        self.name = name
        self.kind = type(value).__name__
        self.alone = 0
        """Bytes that no other variable leads to: what `del` frees."""
        self.shared = 0
        """Bytes that others lead to as well."""


def holdings(names: Mapping[str, object]) -> tuple[list[Holding], bool]:
    """What each variable holds, the one with most first, and whether that is all."""
    found = [Holding(name, value) for name, value in names.items()]
    owners: dict[int, int] = {}
    reached: list[set[int]] = []
    sizes: dict[int, int] = {}
    # What the walk itself makes is alive meanwhile, and in none of the variables.
    left = _MOST_OBJECTS
    for number, value in enumerate(names.values()):
        seen: set[int] = set()
        waiting = [value]
        while waiting and left > 0:
            one = waiting.pop()
            key = id(one)
            if key in seen or isinstance(one, _LEFT_OUT) or one is names:
                continue
            seen.add(key)
            left -= 1
            if key not in sizes:
                try:
                    sizes[key] = _size(one)
                except Exception:
                    # A class of its own may answer anything.
                    sizes[key] = 0
            owners[key] = number if owners.get(key, number) == number else _SHARED
            waiting.extend(gc.get_referents(one))
            if type(one).__module__ == "numpy":
                # The collector does not know what these refer to.
                waiting.extend(_inside_of_array(one, left))
        reached.append(seen)
    for number, seen in enumerate(reached):
        for key in seen:
            if owners[key] == number:
                found[number].alone += sizes[key]
            else:
                found[number].shared += sizes[key]
    found.sort(key=lambda one: (-one.alone, -one.shared))
    return found, left > 0


def _size(one: object) -> int:
    """The bytes of an object alone."""
    if isinstance(type(one).__sizeof__, types.FunctionType):
        # Libraries such as pandas answer with all that is inside, which the walk finds itself.
        return object.__sizeof__(one)
    return sys.getsizeof(one)


def _inside_of_array(array: Any, most: int) -> list[object]:
    """The array that one is a view of, or the objects in it."""
    base = getattr(array, "base", None)
    if base is not None:
        return [base]
    if getattr(getattr(array, "dtype", None), "hasobject", False) and getattr(array, "size", most) < most:
        return list(array.flat)
    return []


def held(names: Mapping[str, object], most: int, show: Callable[[list[int]], list[str]]) -> str:
    """A table of what variables hold, with so many rows. ``show`` writes amounts."""
    found, is_all = holdings(names)
    rows = [one for one in found if one.alone or one.shared]
    alone = show([one.alone for one in rows[:most]])
    shared = show([one.shared for one in rows[:most]])
    lines = [f"{'holds':>10} {'with others':>12}  variable"]
    for one, bytes_alone, bytes_shared in zip(rows, alone, shared):
        lines.append(f"{bytes_alone:>10} {bytes_shared:>12}  {one.name} ({one.kind})")
    if len(rows) > most:
        lines.append(f"… and {len(rows) - most} more")
    if not is_all:
        lines.append(f"Only {_MOST_OBJECTS:,} objects were looked at: the figures are too low.")
    return "\n".join(lines)


def resident_set() -> int:
    """The bytes of this process that are in memory."""
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    import mmap

    return pages * mmap.PAGESIZE
