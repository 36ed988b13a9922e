"""What the start of every interpreter runs if an environment variable of nthbyte is set.

``nthbyte.pth`` lies beside the package, and ``site`` executes its one line at the start of each interpreter. Without
the variables the line looks into the environment and does nothing else: it imports no module. It also does nothing,
silently, where the package is gone or cannot be imported. From CPython 3.15 on there are ``.start`` files (PEP 829)
for the same purpose, and ``.pth`` files work up to 3.17. There is no such file: ``site`` imports 31 modules for one,
8 ms at each start of every program, and prints a traceback where the package is gone (docs/internals/attach.md).

Each variable has a function of its own here. What it does is the program's start: nothing may be raised, and a line is
printed only where somebody's value for a variable is wrong.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable


def run() -> None:
    """Does what the variables ask for. ``nthbyte.pth`` calls it, and ignores errors."""
    if _has_other_rights():
        return
    values = {name: os.environ.get(name) for name in _FUNCTIONS}
    if values["NTHBYTE_JOIN"] and values["NTHBYTE"] != "ready":
        # A child of a recorded process is recorded as such, or not at all.
        values["NTHBYTE"] = None
    for name, function in _FUNCTIONS.items():
        value = values[name]
        if value:
            try:
                function(value)
            except Exception:
                # The next one is no less wanted.
                pass


def _has_other_rights() -> bool:
    """Whether the program has rights that who set its environment does not have (setuid)."""
    return os.getuid() != os.geteuid() or os.getgid() != os.getegid()


def _join(text: str) -> None:
    """Joins the session of the process that has started this one."""
    from nthbyte._children import join_program

    join_program(text)


def _switch(value: str) -> None:
    """Records this program, or makes it ready to be."""
    if value == "ready":
        from nthbyte._ready import at_start

        at_start(value)
    else:
        from nthbyte._environment import at_start as record

        record(value)


# The variables that `nthbyte.pth` looks for, and what each does with its value.
_FUNCTIONS: dict[str, Callable[[str], object]] = {"NTHBYTE_JOIN": _join, "NTHBYTE": _switch}
