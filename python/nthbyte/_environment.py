"""Recordings that the environment asks for: ``NTHBYTE=on``, and ``NTHBYTE_EVERY`` and its like for each option.

The command stays as it is: ``nthbyte.pth`` leads here at the interpreter's start, before the program. One line on
stderr refuses a wrong value, and the program runs on without a recording.
"""

from __future__ import annotations

import os
import sys

from nthbyte import _family
from nthbyte._agent import Error, restart_tracemalloc, stop_tracemalloc
from nthbyte._command_line import default_output
from nthbyte._end_line import say
from nthbyte._options import OPTIONS, Option
from nthbyte._run import record
from nthbyte._session import configure, is_running, leave_children_alone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VARIABLE = "NTHBYTE"
_ON = ("on", "1", "yes", "true")
_OFF = ("off", "0", "no", "false")


def at_start(value: str) -> None:
    """Records this process until it ends, as ``nthbyte run`` would. ``value`` is the variable NTHBYTE's."""
    switch = value.strip().lower()
    words = _family.command_line()
    if switch in _OFF or is_running() or _family.is_apart(words):
        return
    try:
        if switch not in _ON:
            raise ValueError(f"{VARIABLE}={value} means nothing: write on or ready")
        _record(words, options_of(os.environ))
    except (Error, ValueError) as error:
        say(f"process {os.getpid()} is not recorded: {error}")


def options_of(environment: Any) -> dict[str, Any]:
    """Returns the options of ``nthbyte run`` by name, as an environment has them.

    Raises ValueError, with one line for the user, if a value is wrong.
    """
    options = {}
    for option in OPTIONS:
        name = variable_of(option)
        text = environment.get(name, "").strip()
        try:
            options[option.name] = _value(option, text) if text else option.default
        except ValueError as error:
            reason = f"{text!r} is not a whole number" if option.read is int else error
            raise ValueError(f"{name}: {reason}") from None
    return options


def variable_of(option: Option) -> str:
    """The name of the variable for an option: NTHBYTE_EVERY."""
    return f"{VARIABLE}_{option.name.upper()}"


def _value(option: Option, text: str) -> Any:
    switch = text.lower()
    if option.placeholder:
        if option.alone is not None and switch in _ON[:1] + _ON[2:]:
            return option.alone
        if option.alone is not None and switch in _OFF:
            return option.default
        return option.read(text)
    if switch not in _ON + _OFF:
        raise ValueError(f"{text!r} is neither on nor off")
    return switch in _ON


def _record(words: list[str], options: dict[str, Any]) -> None:
    """Begins the recording. ``words`` started this process."""
    try:
        os.getcwd()
    except OSError as error:
        raise Error(f"there is no working folder ({error.strerror})") from None
    name, command = _program(words)
    output = _output(options.pop("output"), default_output(name))
    is_quiet = options.pop("quiet")
    with_children = options.pop("children")
    schedule = {name: options.pop(name) for name in ("start_after", "for", "signal")}
    # That is a value of NTHBYTE itself.
    options.pop("ready")
    config = configure(output, options, command)
    limit = stop_tracemalloc()
    if not with_children:
        # Those that would be recorded by this variable, too.
        os.environ.pop(VARIABLE, None)
        leave_children_alone()
    try:
        record(config, options["force"], is_quiet, with_children, schedule)
    finally:
        restart_tracemalloc(limit)


def _output(given: str | None, name: str) -> str:
    """Returns the path of the profile: a file of this name if a folder is given, or none."""
    if not given:
        return name
    if os.path.isdir(given):
        return os.path.join(given, name)
    return given


def _program(words: list[str]) -> tuple[str, list[str]]:
    """Returns a short name of the program that this interpreter runs, and its command line without the interpreter's.

    ``words`` started the interpreter.
    """
    arguments = list(getattr(sys, "argv", ()))
    if not any(arguments):
        # The interpreter alone; or a program that has Python inside of it, such as uWSGI.
        arguments = words or [""]
    first, rest = arguments[0], arguments[1:]
    if first not in ("-c", "-m"):
        return os.path.splitext(os.path.basename(first))[0] or "python", arguments
    # The code or the module follows the interpreter's own options: -m name, or -mname.
    word = words[max(len(words) - len(arguments), 0)]
    target = word.partition(first[1])[2] if word.startswith("-") else word
    return "code" if first == "-c" else target or "python", [first, target, *rest]
