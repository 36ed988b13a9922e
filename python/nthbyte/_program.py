"""``nthbyte run -- ./program``: has the command run a program of native code, in the place of this process.

The command checks the program, and preloads the agent for such programs (``crates/cli/src/commands/run_program.rs``).
"""

from __future__ import annotations

import os
import signal
import sys

from nthbyte._agent import COMMAND, Error, interpreter, to_json, with_utf8_paths
from nthbyte._command_line import HEAD, Program, fail, is_python_script
from nthbyte._family import is_interpreter
from nthbyte._options import OPTIONS
from nthbyte._session import as_text, configure
from nthbyte._size import CONSTANT_PERIOD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

# The options that have a meaning for a program without Python. The first group is a session's settings.
_SETTINGS = ("force", "every", "seed", "tags")
_OTHERS = ("output", "quiet", "native", "native_frames", "fixed")


def recognise(program: Program) -> Program:
    """Returns the program as what its file is: native code, or a script as given. Exits if it can be neither."""
    try:
        with open(program.target, "rb") as file:
            head = file.read(HEAD)
    except OSError:
        # The same error is explained where the script is read.
        return program
    if head.startswith(b"\x7fELF"):
        return Program("native", program.target, program.arguments, program.command_line)
    first = head.partition(b"\n")[0]
    if head.startswith(b"#!") and not is_python_script(head):
        shell = first[2:].decode(errors="replace").strip()
        fail(
            f"{program.target} is a script for {shell}: name the program that it starts, or run it with "
            f"nthbyte run -- {shell} {program.target}",
            2,
        )
    return program


def execute(program: Program, options: dict[str, Any]) -> NoReturn:
    """Replaces this process by the program, under the profiler. Exits on an error.

    ``options``: the command line's, by name.
    """
    path = program.target
    _refuse_others(options, path)
    _refuse_python(path)
    output = options["output"] or program.default_output
    defaults = {option.name: option.default for option in OPTIONS}
    settings = {**defaults, **{name: options[name] for name in _SETTINGS}}
    try:
        config: dict[str, Any] = {**configure(output, settings, program.command_line)}
        if options["fixed"]:
            _fix_distances(config, options)
    except ValueError as error:
        fail(str(error), 2)
    except Error as error:
        fail(str(error), 1)
    # The agent names the C library in place of an interpreter, and claims the profile's file.
    config.update(
        native=True,
        native_frames=True,
        executable=as_text(os.path.abspath(path)),
        interpreter="",
    )
    text = to_json(
        {
            "session": with_utf8_paths(config),
            "force": options["force"],
            "quiet": options["quiet"],
            "closed": [descriptor for descriptor in range(3) if not _is_open(descriptor)],
        }
    )
    words = ["--settings", text, "--folder", os.path.dirname(os.path.dirname(COMMAND))]
    _restore_signals()
    try:
        os.execve(
            COMMAND, ["nthbyte", "run-program", *words, "--", path, *program.command_line], _environment()
        )
    except OSError as error:
        fail(f"cannot run {COMMAND}: {error.strerror}; install nthbyte again", 1)


def _fix_distances(config: dict[str, Any], options: dict[str, Any]) -> None:
    """Makes the distances equal, for a translated RPython program: which one is, its agent finds out.

    The check of options knows only what this Python has. Raises ValueError if other options exclude it.
    """
    if options["every"] is None:
        config.update(auto=False, period=CONSTANT_PERIOD)
    if config["auto"] or config["distances"] != "exponential":
        raise ValueError("--fixed needs a period: give a size of 64 bytes or more with --every")
    config["distances"] = "fixed"


def _refuse_python(path: str) -> None:
    """Exits if the program is a Python."""
    if os.path.realpath(path) == os.path.realpath(sys.executable):
        fail(f"leave out {path!r}: nthbyte run SCRIPT runs it with {interpreter()}, {sys.executable}", 2)
    if is_interpreter(os.path.basename(path)) or is_interpreter(os.path.basename(os.path.realpath(path))):
        fail(f"{path} is a Python: profile its programs with {path} -m nthbyte run SCRIPT", 2)


def _refuse_others(options: dict[str, Any], path: str) -> None:
    """Exits if an option was given that a program without Python does not have."""
    for option in OPTIONS:
        if option.name not in (*_SETTINGS, *_OTHERS) and options[option.name] != option.default:
            fail(f"{option.flag} works with Python programs only: leave it out for {path}", 2)
    if options["native"] is False:
        fail(f"--no-native leaves nothing to record: {path} is native code", 2)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _environment() -> dict[bytes, bytes]:
    """Returns the environment in which this process was started. Python itself sets LC_CTYPE in the C locale."""
    try:
        with open("/proc/self/environ", "rb") as file:
            variables = [entry.partition(b"=") for entry in file.read().split(b"\0") if b"=" in entry]
        return {name: value for name, _, value in variables}
    except OSError:
        return dict(os.environb)


def _restore_signals() -> None:
    """Gives the signals that Python ignores for itself their defaults, as ``subprocess`` does."""
    for name in ("SIGPIPE", "SIGXFZ", "SIGXFSZ"):
        number = getattr(signal, name, None)
        if number is not None:
            signal.signal(number, signal.SIG_DFL)
