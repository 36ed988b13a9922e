"""A row of ``nthbyte check``: one thing that nthbyte does, and whether it works."""

from __future__ import annotations

YES, PARTLY, NO, UNKNOWN = "yes", "partly", "no", "unknown"


class Row:
    """What works, or why not."""

    __slots__ = ("state", "text", "way_out", "what")

    def __init__(self, what: str, state: str, text: str, way_out: str | None = None):
        self.what = what
        """What it is about: ``native memory``."""
        self.state = state
        """``yes``, ``partly``, ``no``, or ``unknown`` if that could not be found out."""
        self.text = text
        """The reason, or what was found: one clause."""
        self.way_out = way_out
        """What to do about it; None if there is nothing to do."""

    @classmethod
    def of_error(cls, what: str, error: object, state: str = NO) -> Row:
        """A row of a message that has the way out after its last semicolon or colon, as nthbyte's have."""
        text = " ".join(str(error).split())
        reason, semicolon, way_out = text.rpartition("; ")
        return cls(what, state, reason, way_out) if semicolon else cls(what, state, text)
