"""Native memory: starts the interpreter again with the library that samples ``malloc``.

The library must be loaded before all others, which the dynamic linker does for the libraries in ``LD_PRELOAD``. So
``nthbyte run --native`` executes the interpreter once more, in the same process and with the same arguments. The
program sees the environment that it would have without nthbyte: the library restores ``LD_PRELOAD`` before the
interpreter starts, and :func:`enter` removes the variable that says so.
"""

from __future__ import annotations

import os
import sys

LIBRARY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libnthbyte_native.so")

# Contains the value that LD_PRELOAD had before. crates/native/src/environment.rs reads it.
_BEFORE = "NTHBYTE_PRELOAD"
_ON = {"--native", "--native-frames"}

_loaded = False
_problem: str | None = None


def enter(arguments: list[str]) -> None:
    """Starts the interpreter again, unless that was done already, or is not wanted or not possible.

    ``arguments`` are those of the command ``nthbyte``.
    """
    global _problem
    if sys.implementation.name != "cpython" or arrive() or not _is_wanted(arguments):
        return
    try:
        with open("/proc/self/cmdline", "rb") as file:
            words = file.read().split(b"\0")[:-1]
        environment = os.environ.copy()
        environment.update(variables())
        if _problem is None:
            os.execve(sys.executable, words, environment)
    except OSError as error:
        _problem = f"cannot start again: {error.strerror}"


def arrive() -> bool:
    """Removes the variable of a restart from the environment. Returns whether this process was started again."""
    global _loaded, _problem
    before = os.environ.pop(_BEFORE, None)
    if before is None:
        return False
    _loaded = os.environ.get("LD_PRELOAD", "") == before
    if not _loaded:
        # The library would have restored it.
        _problem = "the dynamic linker did not load the library"
        if before:
            os.environ["LD_PRELOAD"] = before
        else:
            del os.environ["LD_PRELOAD"]
    return True


def is_loaded() -> bool:
    """Whether this process has the library."""
    return _loaded


def problem() -> str | None:
    """Returns the reason why native memory is not recorded, if it should be."""
    return _problem


def variables() -> dict[str, str]:
    """Returns the variables that make a new process load the library; none if that is not possible."""
    global _problem
    if os.uname().machine != "x86_64":
        _problem = "there is no library for this processor yet"
    elif ":" in LIBRARY or any(sign.isspace() for sign in LIBRARY):
        _problem = f"the path of the library has a space or a colon: {LIBRARY}"
    elif not os.path.exists(LIBRARY):
        _problem = f"{LIBRARY} is missing; install nthbyte again"
    else:
        before = os.environ.get("LD_PRELOAD", "")
        return {"LD_PRELOAD": f"{LIBRARY}:{before}" if before else LIBRARY, _BEFORE: before}
    return {}


def _is_wanted(arguments: list[str]) -> bool:
    if _ON.isdisjoint(arguments):
        return False
    # It may be an argument of the program.
    from nthbyte._command_line import split

    return not _ON.isdisjoint(split(arguments[1:])[0])
