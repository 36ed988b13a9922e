"""Finds the console script, or the program of native code, that a word such as ``pytest`` means."""

from __future__ import annotations

import os
import sys

from nthbyte._agent import interpreter
from nthbyte._command_line import HEAD, Program, fail, is_python_script
from nthbyte._family import is_interpreter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def resolve(program: Program) -> Program:
    """Returns the program with the path of its console script, if its target is not a path.

    The script is one of the interpreter that runs. If there is none, it is a program of native code that the shell
    finds. Exits if there is neither.
    """
    name = program.target
    if os.path.isdir(name) and os.path.exists(os.path.join(name, "__main__.py")):
        return program
    if is_interpreter(name):
        fail(f"leave out {name!r}: nthbyte run SCRIPT runs it with {interpreter()}, {sys.executable}", 2)
    for folder in _folders():
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            if not _is_python(path) and os.path.isdir(name):
                # `dir`, which is a folder here, is not the program of that name.
                return program
            if not _is_python(path):
                return _native(path, program)
            line = [path, *program.arguments]
            return Program("script", path, program.arguments, line)
    elsewhere = _on_path(name)
    if os.path.isdir(name):
        # The interpreter says what it lacks.
        return program
    if elsewhere is None:
        fail(f"there is no file {name!r} here, and no console script of this name for {sys.executable}", 2)
    if _is_python(elsewhere):
        fail(
            f"{elsewhere} belongs to another Python than {sys.executable}: install nthbyte for that one",
            2,
        )
    return _native(elsewhere, program)


def _native(path: str, program: Program) -> Program:
    """Returns the program in this file. Exits if it is not native code."""
    from nthbyte._program import recognise

    found = recognise(Program("script", path, program.arguments, program.command_line))
    if found.kind != "native":
        fail(f"{path} is neither a Python script nor a program of native code", 2)
    return found


def _folders() -> Iterator[str]:
    """The folders with the console scripts of this interpreter."""
    yield os.path.dirname(sys.executable)
    import sysconfig

    schemes = sysconfig.get_scheme_names()
    for scheme in (None, f"{os.name}_user"):
        if scheme is None:
            yield sysconfig.get_path("scripts")
        elif scheme in schemes and not sys.flags.no_user_site:
            yield sysconfig.get_path("scripts", scheme)
    # `pip install --target` puts them beside the packages.
    yield os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin")


def _on_path(name: str) -> str | None:
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def _is_python(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return is_python_script(file.read(HEAD))
    except OSError:
        return False
