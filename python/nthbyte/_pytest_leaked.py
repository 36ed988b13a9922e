"""The objects that a test leaves alive, as far as the garbage collector knows them: containers and instances.

Everything from before the test is put out of the collector's sight (``gc.freeze``), so what it sees afterwards is new.
A program that has frozen objects itself keeps them frozen; then the new ones are told by their addresses.
"""

from __future__ import annotations

import gc
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Types and objects that a report shows, and characters of each.
_TYPES = 10
_OBJECTS = 10
_LENGTH = 100


class LeakedObjects:
    """Finds the objects that were made between ``begin`` and ``end`` and are alive then."""

    def __init__(self) -> None:
        self._is_frozen = False
        self._before: set[int] | None = None

    def begin(self) -> None:
        """Objects that are alive now are not looked at."""
        gc.collect()
        if hasattr(gc, "freeze") and gc.get_freeze_count() == 0:
            gc.freeze()
            self._is_frozen = True
        else:
            self._before = {id(one) for one in gc.get_objects()}

    def end(self) -> list[object]:
        """The new objects that only a reference keeps, and not the collector's delay."""
        gc.collect()
        clear = getattr(sys, "_clear_internal_caches", None)
        if clear is not None:
            clear()
        found = gc.get_objects()
        if self._is_frozen:
            gc.unfreeze()
        before = self._before or ()
        own = {id(found), id(self), id(self.__dict__), id(self._before)}
        frames = type(sys._getframe())
        new = [
            one
            for one in found
            if id(one) not in own and id(one) not in before and not isinstance(one, (frames, _Cell))
        ]
        return [*new, *_untracked(new)]


_Cell = type((lambda cell: lambda: cell)(None).__closure__[0])  # type: ignore[index]


def _untracked(new: list[object]) -> list[object]:
    """Dictionaries of plain values, which the collector does not track (CPython up to 3.13), in new objects."""
    known = {id(one) for one in new}
    found: list[object] = []
    for one in new:
        for child in gc.get_referents(one):
            if type(child) is dict and not gc.is_tracked(child) and id(child) not in known:
                known.add(id(child))
                found.append(child)
    return found


def described(objects: list[object]) -> str:
    """The types of objects with their numbers, and some of the objects."""
    counts: dict[str, int] = {}
    for one in objects:
        counts[type(one).__name__] = counts.get(type(one).__name__, 0) + 1
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    lines = [f"    Object types that leaked (total: {len(objects)} objects):"]
    lines += [f"        - {count} {name} instance(s)" for name, count in ranked[:_TYPES]]
    if len(ranked) > _TYPES:
        lines.append(f"        ... and {len(ranked) - _TYPES} more types")
    lines += ["", "    Sample of leaked objects:"]
    for one in objects[:_OBJECTS]:
        lines.append(f"        - {type(one).__name__}: {_shown(one)}")
    if len(objects) > _OBJECTS:
        lines.append(f"        ... and {len(objects) - _OBJECTS} more")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        return "<repr failed>"
    return text if len(text) <= _LENGTH else text[: _LENGTH - 3] + "..."
