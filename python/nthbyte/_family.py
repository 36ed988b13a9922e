"""Programs that a recorded process starts: they join its session by an environment variable.

``nthbyte.pth`` reads it at the start of each interpreter that has nthbyte (``_hook.py``). The recorded process does not
see it: it is in the C library's environment only, which programs get that are started without an environment of their
own. Where the program gives another one, by ``subprocess`` or by functions of ``os``, the variable is added to it.

Children of ``multiprocessing`` join by their command line: see ``_children.py``.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Callable

VARIABLE = "NTHBYTE_JOIN"
INTERPRETERS = ("python", "pypy")
"""The beginnings of the names of interpreters."""
MOST_PROFILES = 100
"""So many profiles of children a family has at most: a program may start thousands."""

# Of what multiprocessing starts beside the program's own processes, of what joins by its command line, and of nthbyte
# itself.
_APART = ("from multiprocessing.", "--multiprocessing-fork", "nthbyte._children", "nthbyte.check")

# The processes that were started, with the names of their interpreters. So many are remembered.
_started: dict[int, str] = {}
_MOST_STARTED = 10_000


def _none() -> str | None:
    return None


# Returns the text for the variable while the running session has its children join, or None.
_text: Callable[[], str | None] = _none
_following = False
# Whether the variable is in the C library's environment, too.
_is_exported = False


def follow(text: Callable[[], str | None], before_exec: Callable[[], object]) -> None:
    """Makes programs that this process starts join the session that ``text`` describes, if any.

    before_exec: called before this process is replaced by another program.
    """
    global _text, _following
    _text = text
    if _following:
        return
    _following = True
    for name in ("execv", "execve", "posix_spawn", "posix_spawnp"):
        function = getattr(os, name, None)
        if function is not None:
            replaced = _with_variable(function, before_exec if name.startswith("exec") else None)
            for attribute in ("__doc__", "__module__", "__name__", "__qualname__"):
                # Programs pickle functions: a pickle has the names.
                setattr(replaced, attribute, getattr(function, attribute, None))
            if function in os.supports_fd:
                os.supports_fd.add(replaced)
            setattr(os, name, replaced)
            setattr(sys.modules[function.__module__], name, replaced)
    _follow_shells()


def _follow_shells() -> None:
    """Has what ``os.system`` starts join, too: its shell gets the variable first, in the same line.

    The C library's environment has it only in a process that was started under nthbyte.
    """
    run = os.system

    def system(command: Any) -> int:
        """Execute the command in a subshell."""
        text = _text()
        if text is not None and not _is_exported and isinstance(command, (str, bytes)):
            # The agent's rule (crates/profile/src/shown.rs), for a word that is always quoted. The agent is not asked:
            # a forked child may call this.
            quoted = text.replace("'", "'\\''")
            set_first = f"{VARIABLE}='{quoted}'; export {VARIABLE}; "
            command = os.fsencode(set_first) + os.fsencode(command)
        return run(command)

    system.__module__, system.__qualname__ = run.__module__, run.__name__
    os.system = sys.modules[run.__module__].system = system  # type: ignore[attr-defined]


def export(text: str) -> None:
    """Puts the variable where programs get it that are started without an environment of their own."""
    global _is_exported
    os.putenv(VARIABLE, text)
    _is_exported = True


def withdraw() -> None:
    """Takes the variable away."""
    global _is_exported
    if _is_exported:
        os.unsetenv(VARIABLE)
        _is_exported = False


def _with_variable(function: Callable[..., Any], before: Callable[[], object] | None) -> Callable[..., Any]:
    execve = os.execve

    def start(*arguments: Any, **options: Any) -> Any:
        text = _text()
        if text is not None:
            if before is not None:
                before()
            if function.__name__ == "execv" and len(arguments) == 2 and not _is_exported:
                return execve(*arguments, _added(os.environ, text))
            if len(arguments) > 2:
                arguments = (*arguments[:2], _added(arguments[2], text), *arguments[3:])
            elif "env" in options:
                options = {**options, "env": _added(options["env"], text)}
        pid = function(*arguments, **options)
        if text is not None and before is None and len(arguments) > 1:
            note(arguments[1], pid)
        return pid

    return start


def _added(environment: Any, text: str) -> Any:
    """Returns an environment with the variable. If it is none, the function refuses it."""
    if environment is None and sys.version_info >= (3, 13) and not _is_exported:
        # `posix_spawn` takes the process's then.
        environment = os.environ
    try:
        return {**environment, VARIABLE: text}
    except TypeError:
        return environment


def added_to_entries(entries: Any) -> Any:
    """Returns an environment as ``_posixsubprocess`` takes it, entries such as ``b"HOME=/root"``, with the variable."""
    text = _text()
    if text is not None and entries is None and not _is_exported:
        entries = [name + b"=" + value for name, value in os.environb.items()]
    if text is None or not isinstance(entries, (list, tuple)):
        return entries
    return [*entries, os.fsencode(f"{VARIABLE}={text}")]


def note(words: Any, pid: Any) -> None:
    """Remembers a program that was started, if it is an interpreter."""
    if not isinstance(pid, int) or _text() is None or len(_started) >= _MOST_STARTED:
        return
    try:
        texts = [os.fsdecode(word) for word in words]
        name = os.path.basename(texts[0])
    except (TypeError, LookupError):
        return
    if is_interpreter(name) and not is_apart(texts):
        _started[pid] = name


def left_out(recorded: set[str]) -> list[str]:
    """Returns the names of interpreters that were started and are not recorded, each with its count, as parts of a
    sentence. ``recorded`` has the numbers of processes with profiles.
    """
    counts: dict[str, int] = {}
    for pid, name in _started.items():
        if str(pid) not in recorded:
            counts[name] = counts.get(name, 0) + 1
    return [name if count == 1 else f"{count} of {name}" for name, count in sorted(counts.items())]


def is_interpreter(name: str) -> bool:
    """Returns whether a file of this name is a Python: ``python3.13``."""
    return name.rstrip("0123456789.") in INTERPRETERS


def is_apart(words: Sequence[str]) -> bool:
    """Whether a command line is of a process that does not join by the variable."""
    if any(part in word for word in words for part in _APART):
        return True
    # nthbyte itself, which begins a session of its own.
    is_module = ("-m", "nthbyte") in zip(words, words[1:])
    return is_module or any(os.path.basename(word) == "nthbyte" for word in words[:2])


def command_line() -> list[str]:
    """Returns the words with which this process was started."""
    original: list[str] | None = getattr(sys, "orig_argv", None)
    if original and any(original):
        return list(original)
    # Python 3.9, of an older PyPy; and a program that has Python inside of it, such as uWSGI.
    with open("/proc/self/cmdline", "rb") as file:
        return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]


def is_full(path: str) -> bool:
    """Whether the family of the profile ``path`` has so many profiles that no more are added."""
    stem, suffix = os.path.splitext(path)
    folder, start = os.path.split(f"{stem}.")
    try:
        names = os.listdir(folder)
    except OSError:
        # Then the profile cannot be made either, which is said there.
        return False
    return sum(name.startswith(start) and name.endswith(suffix) for name in names) >= MOST_PROFILES
