"""Profiles the processes that the program starts with ``multiprocessing``, and other programs.

The agent handles ``fork`` itself. The other two start methods start a new interpreter. This module replaces
the function with which ``multiprocessing`` starts an interpreter. If the command line contains the code of a
start method, the replacement puts a line before that code: it works where nthbyte's ``.pth`` file is not read. Any
other program gets the environment variable of ``_family.py`` with which it may join.

A program frozen by PyInstaller runs no code of a command line but that which begins as ``multiprocessing``'s own, so
there the line comes after its first statement. Its ``spawn`` has no code in the command line: such children are not
profiled, and the first of a process is said.
"""

from __future__ import annotations

# Imported with this module, because `nthbyte run` imports it before the program's folder is on `sys.path`.
import _posixsubprocess
import os
import sys

from nthbyte import _family
from nthbyte._agent import Error, interpreter, restart_tracemalloc, stop_tracemalloc, to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from nthbyte._config import Config

# The first statement of multiprocessing's code for a new interpreter, and our function to call before it.
_START_METHODS = {
    "from multiprocessing.spawn import spawn_main": "join",
    "from multiprocessing.forkserver import main": "join_when_forked",
}

_following = False
_started = 0
_has_said = False


def follow(running: Callable[[], Config | None]) -> None:
    """Makes new processes of ``multiprocessing`` join the session that ``running`` returns, if any."""
    global _following
    if _following:
        return
    _following = True
    fork_exec: Callable[..., int] = _posixsubprocess.fork_exec

    def fork_exec_and_join(*arguments: Any) -> int:
        config = running()
        if config is None or not arguments:
            return fork_exec(*arguments)
        words = _joining(arguments[0], config)
        if words is not arguments[0]:
            return fork_exec(words, *arguments[1:])
        pid = fork_exec(*arguments[:5], _family.added_to_entries(arguments[5]), *arguments[6:])
        _family.note(words, pid)
        return pid

    _posixsubprocess.fork_exec = fork_exec_and_join
    # A program that runs already has it under another name.
    subprocess: Any = sys.modules.get("subprocess")
    if getattr(subprocess, "_fork_exec", None) is fork_exec:
        subprocess._fork_exec = fork_exec_and_join


def child_path(path: str, pid: int) -> str:
    """Returns the path of a child's profile: ``app.nthb`` becomes ``app.1234.nthb``."""
    stem, suffix = os.path.splitext(path)
    return f"{stem}.{pid}{suffix}"


def join(text: str, number: int = 0) -> None:
    """Starts a session in this process, as a child of the one that ``text`` describes.

    ``number`` tells processes with the same text apart.
    """
    import json

    from nthbyte._session import begin, is_running

    if is_running():
        # It has joined by the variable.
        return
    family: Config = json.loads(text)
    config: Config = {**family, "output": child_path(family["output"], os.getpid())}
    if number and config["seed"] is not None:
        config["seed"] = _seed_of_child(config["seed"], number)
    if config["native"]:
        # The first process could record it; this one may be another program's child with other rights.
        config["native"] = None
    limit = stop_tracemalloc()
    try:
        begin(config, family=family["output"])
    except Error as error:
        if sys.stderr is not None:
            try:
                print(f"nthbyte: process {os.getpid()} is not profiled: {error}", file=sys.stderr)
            except OSError:
                # Nobody can read it.
                pass
    restart_tracemalloc(limit)


def join_program(text: str) -> None:
    """Starts a session in this process, another program that the process with the session ``text`` has started.

    Nothing is said if that is not possible: it is counted in the process that has started it.
    """
    words = _family.command_line()
    if _family.is_apart(words):
        return
    # Not only in `os.environ`: a child started from here has its own.
    os.environ.pop(_family.VARIABLE, None)
    import json

    from nthbyte._session import as_text, begin, export, kept_command

    family: Config = json.loads(text)
    if _family.is_full(family["output"]):
        return
    is_fixed = family["distances"] == "fixed" and sys.implementation.name == "cpython"
    config: Config = {
        **family,
        "output": child_path(family["output"], os.getpid()),
        "seed": None if family["seed"] is None else _seed_of_child(family["seed"], os.getpid()),
        "distances": "exponential" if is_fixed else family["distances"],
        "native": False if family["native"] is False else None,
        "native_frames": family["native_frames"] and sys.implementation.name == "cpython",
        "command": kept_command(words[1:]),
        "executable": as_text(sys.executable or words[0]),
        "interpreter": interpreter(),
    }
    limit = stop_tracemalloc()
    try:
        begin(config, family=family["output"], exports=True)
        export()
    except Error:
        # This interpreter is left alone.
        pass
    restart_tracemalloc(limit)


def join_when_forked(text: str, starter: int, profile: str) -> None:
    """Makes each fork of this process join. This process is the fork server, and does not join itself.

    What begins once the recording of the process ``starter``, into ``profile``, has been ended does not join.
    """
    forks = 0

    def count() -> None:
        nonlocal forks
        forks += 1

    def join_if_open() -> None:
        if not _has_closed(starter, profile):
            join(text, forks)

    os.register_at_fork(before=count, after_in_child=join_if_open)


def _has_closed(pid: int, profile: str) -> bool:
    """Whether a process that has not ended has closed its profile; False if that cannot be seen."""
    folder = f"/proc/{pid}/fd"
    opened = []
    try:
        for name in os.listdir(folder):
            try:
                # The file may have been removed meanwhile.
                opened.append(os.readlink(f"{folder}/{name}").removesuffix(" (deleted)"))
            except FileNotFoundError:
                # Closed since.
                pass
    except OSError:
        return False
    # A process that has just ended has none.
    return bool(opened) and profile not in opened


def _say_once_that_frozen_children_are_missing() -> None:
    global _has_said
    if not _has_said and sys.stderr is not None:
        _has_said = True
        try:
            print(
                "nthbyte: what a frozen program starts by spawn is not profiled; use fork or forkserver",
                file=sys.stderr,
            )
        except OSError:
            # Nobody can read it.
            pass


def _seed_of_child(seed: int, number: int) -> int:
    """Returns another seed for each child. With the same one, children that do the same are sampled at the same points,
    and a report takes their samples for independent ones.

    It is the last step of MurmurHash3 (``fmix64``).
    """
    value = (seed + number) % 2**64
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        value = (value ^ value >> 33) * factor % 2**64
    return value ^ value >> 33


def _joining(command: Any, config: Config) -> Any:
    """Returns the command line with our line in it, or ``command`` itself if it starts another program."""
    global _started
    try:
        # Some are bytes: multiprocessing's first one, and what the program passes so to subprocess. With -bb, comparing
        # these with text is an error.
        words = [os.fsdecode(word) for word in command]
        if words[0] != sys.executable:
            return command
        if words[1:2] == ["--multiprocessing-fork"]:
            _say_once_that_frozen_children_are_missing()
            return command
        at = words.index("-c") + 1
        first, code = "", words[at]
        if code.startswith("import sys;"):
            # The fork server's code begins like this since CPython 3.15.
            first, code = "import sys; ", code[len("import sys;") :].lstrip(" ")
        statement, _, rest = code.partition(";")
        function = _START_METHODS[statement]
    except (AttributeError, TypeError, ValueError, LookupError):
        return command
    _started += 1
    seed = None if config["seed"] is None else _seed_of_child(config["seed"], _started)
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    arguments: list[Any] = [to_json({**config, "seed": seed, "parent_pid": os.getpid()})]
    if function == "join_when_forked":
        from nthbyte._session import running_profile

        arguments += [os.getpid(), os.path.realpath(running_profile() or "")]
    line = (
        f"import sys; sys.path.append({package!r}); from nthbyte._children import {function}; "
        f"sys.path.pop(); {function}{tuple(arguments)!r}; "
    )
    is_frozen = getattr(sys, "frozen", False)
    joining = f"{first}{statement}; {line}{rest.lstrip()}" if is_frozen else line + words[at]
    return [*command[:at], joining, *command[at + 1 :]]
