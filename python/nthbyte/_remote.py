"""What another process asks of this one: to begin or end a recording, or to say where it is.

``nthbyte attach`` runs a line in this process that calls :func:`answer`, and a process that is ready calls it for what
comes through its socket (``_ready.py``). Both are guests in a program that has not asked for them: nothing is printed,
no warning is shown, and ``sys.path`` stays as it is.
"""

from __future__ import annotations

import os
import sys

from nthbyte._agent import Error, as_utf8
from nthbyte._end_line import EndLine
from nthbyte._options import OPTIONS
from nthbyte._session import begin, configure, finish, leave_children_alone, running_profile, snapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

# The end line of the recording that this module has begun.
_line: EndLine | None = None


def answer(text: str) -> str:
    """Does the request, and returns the answer: ``+`` and its lines, or ``!`` and one line that says why not.

    ``text`` has fields ``name=value`` with zeros between them: ``do``, ``folder`` (of the one who asks), and options of
    ``nthbyte run``.

    An exception that a signal handler of the program raises meanwhile is the program's, and goes to it.
    """
    request = dict(field.split("=", 1) for field in text.split("\0"))
    function = _FUNCTIONS.get(request.pop("do", ""))
    try:
        if function is None:
            raise Error("this version of nthbyte does not know the request: use the same version for both")
        return "+" + function(request.pop("folder", "/"), request)
    except (Error, ValueError) as error:
        return f"!{error}"
    except Exception as error:
        if _is_of_a_handler(error):
            raise
        return f"!{type(error).__name__}: {error}"


def _is_of_a_handler(error: Exception) -> bool:
    """Whether code of the program has raised it: a signal handler that ran during ours."""
    own = (os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.__file__), "<frozen ", "<nthbyte ")
    traceback = error.__traceback__
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(own):
            return True
        traceback = traceback.tb_next
    return False


def _options(words: dict[str, str]) -> dict[str, Any]:
    """Returns the options of a session that are given as on a command line."""
    options = {option.name: option.default for option in OPTIONS if option.is_argument}
    for option in OPTIONS:
        if option.name in words and option.is_argument:
            word = words[option.name]
            options[option.name] = option.read(word) if option.placeholder else word == "yes"
    return options


def _begin(folder: str, words: dict[str, str]) -> str:
    """Begins a recording. The answer is its path, and the memory that was there before, in bytes."""
    global _line
    if running_profile() is not None:
        raise Error(f"process {os.getpid()} is recorded already, into {running_profile()}")
    options = _options(words)
    config = configure(words["output"], options, getattr(sys, "argv", []))
    config["memory_before"] = before = _resident()
    # Programs join that Python code starts. The environment of this process stays as it is: other threads may read it.
    with_children = words.get("children") != "no"
    leave_children_alone(not with_children)
    path = begin(config, force=options["force"], exports=with_children)
    _line = EndLine(path, folder)
    _drop_list_of_files()
    return f"{as_utf8(path)}\n{before}"


def _end(folder: str, words: dict[str, str]) -> str:
    """Ends the recording. The answer is what ``nthbyte run`` prints at the end."""
    global _line
    path = running_profile()
    if path is None:
        raise Error(f"process {os.getpid()} is not recorded: nothing to end")
    line, _line = _line, None
    result = finish()
    _drop_list_of_files()
    return as_utf8((line or EndLine(path, folder)).text(result, folder))


def _where(folder: str, words: dict[str, str]) -> str:
    """The answer is the path of the running recording, or empty."""
    return as_utf8(running_profile() or "")


def _snapshot(folder: str, words: dict[str, str]) -> str:
    """Takes a snapshot of what holds what."""
    reason = snapshot(force=True)
    if reason is not None:
        raise Error(f"there is no snapshot: {reason}")
    return as_utf8(running_profile() or "")


_FUNCTIONS: dict[str, Callable[[str, dict[str, str]], str]] = {
    "begin": _begin,
    "end": _end,
    "where": _where,
    "snapshot": _snapshot,
}


def _resident() -> int:
    """The bytes of this process that are in memory."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def _drop_list_of_files() -> None:
    """Drops the list of nthbyte's files that ``import`` keeps, which the program would not have read."""
    sys.path_importer_cache.pop(os.path.dirname(os.path.abspath(__file__)), None)
