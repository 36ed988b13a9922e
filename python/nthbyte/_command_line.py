"""The command line of ``nthbyte run``: nthbyte's own options, and the program that follows them."""

from __future__ import annotations

import os
import sys

from nthbyte._family import INTERPRETERS
from nthbyte._options import OPTIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, NoReturn


# Words in the interpreter line of a script that say that it is written in Python, and how much of a file has them.
_PYTHON = (*(name.encode() for name in INTERPRETERS), b"uv run", b"pipx run")
HEAD = 2048

# What the name of a script in Python ends with.
_SUFFIXES = (".py", ".pyc", ".pyz", ".zip")


class Program:
    """The program to run: a script, a module, code, or a program of native code."""

    def __init__(self, kind: str, target: str, arguments: list[str], command_line: list[str]):
        self.kind = kind
        """``script``, ``module``, ``code`` or ``native``."""
        self.target = target
        """The path, the module's name or the code; ``-`` means a script on standard input."""
        self.arguments = arguments
        """The program's own arguments."""
        self.command_line = command_line
        """The arguments that start the same program with Python alone, or the native program."""

    @property
    def is_name(self) -> bool:
        """Whether the target is not a path, but perhaps the name of a console script."""
        target = self.target
        if self.kind != "script" or os.sep in target or target.endswith(_SUFFIXES):
            return False
        return target != "-" and not os.path.isfile(target)

    @property
    def may_be_native(self) -> bool:
        """Whether the target is a file that need not be written in Python."""
        return self.kind == "script" and not self.target.endswith(_SUFFIXES) and os.path.isfile(self.target)

    @property
    def name(self) -> str:
        """A short name for the profile's file name."""
        if self.kind == "code":
            return "code"
        if self.kind == "module":
            return self.target
        if self.target == "-":
            return "stdin"
        return os.path.splitext(os.path.basename(os.path.abspath(self.target)))[0]

    @property
    def default_output(self) -> str:
        """The profile's file name by default."""
        return default_output(self.name)


def default_output(name: str) -> str:
    """Returns the file name of a profile of a program by default. Bytes of its name that are not UTF-8 are ``_``."""
    name = "".join("_" if "\ud800" <= sign <= "\udfff" else sign for sign in name)
    return f"nthbyte-{name}.{os.getpid()}.nthb"


_BY_FLAG = {flag: option for option in OPTIONS for flag in option.flags}


def read(words: list[str]) -> tuple[dict[str, Any], Program]:
    """Reads the words after ``nthbyte run``: the options by name, and the program. Exits on an error and after help."""
    own, program = split(words)
    options = _read_correct(own)
    if options is None:
        from nthbyte._arguments import parse

        options = parse(own)
    if options["output"] == "-":
        fail("a profile is written to a file, not to standard output: name one with -o", 2)
    if program is None:
        fail("nothing to run: nthbyte run (SCRIPT | PROGRAM | -m MODULE | -c CODE) [ARGS...]", 2)
    return options, program


def split(
    words: list[str], takes: Callable[[str, list[str]], bool] | None = None
) -> tuple[list[str], Program | None]:
    """Splits the words into nthbyte's options and the program, which begins at the first word that is not an option.

    ``takes`` says whether an option has the first of the words after it as its value; by default for the options of
    ``run``.
    """
    takes = takes or _takes
    at = 0
    while at < len(words):
        word, rest = words[at], words[at + 1 :]
        for flag, kind in (("-m", "module"), ("-c", "code")):
            if word.startswith(flag):
                target = [word[2:]] if len(word) > 2 else rest[:1]
                rest = rest if len(word) > 2 else rest[1:]
                if not target:
                    fail(f"{flag} needs the {kind} to run", 2)
                if kind == "module" and os.sep in target[0]:
                    fail(f"-m needs a module's name, not a path: nthbyte run {target[0]}", 2)
                return words[:at], Program(kind, target[0], rest, words[at:])
        if word == "--":
            return words[:at], Program("script", rest[0], rest[1:], rest) if rest else None
        if word == "-" or not word.startswith("-"):
            return words[:at], Program("script", word, rest, words[at:])
        at += 2 if takes(word, rest) else 1
    return words, None


def _takes(word: str, rest: list[str]) -> bool:
    option = _BY_FLAG.get(word)
    return option is not None and option.takes(rest)


def _read_correct(words: list[str]) -> dict[str, Any] | None:
    """Reads correct options. Returns None if ``argparse`` must print an error or the help.

    ``argparse`` adds 1.4 MB to the program's memory: a twentieth of the memory of many programs.
    """
    options = {option.name: option.default for option in OPTIONS}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        flag, equals, value = word.partition("=")
        option = _BY_FLAG.get(flag)
        if option is None or (equals and not (option.placeholder and flag.startswith("--"))):
            return None
        if not option.placeholder:
            options[option.name] = option.value_of(flag)
            continue
        if not equals:
            if option.alone is not None and not option.takes(rest):
                options[option.name] = option.alone
                continue
            value = rest.pop(0) if rest else ""
        if not value or value.startswith("-"):
            return None
        try:
            options[option.name] = option.read(value)
        except ValueError:
            return None
    return options


def is_python_script(head: bytes) -> bool:
    """Returns whether a file that begins with ``head`` has an interpreter line with a Python, or what starts one.

    Long paths are on the second line, for ``sh``.
    """
    if not head.startswith(b"#!"):
        return False
    first, _, rest = head.partition(b"\n")
    second = rest.partition(b"\n")[0]
    lines = [first, second] if second.startswith(b"'''exec'") else [first]
    return any(word in line for word in _PYTHON for line in lines)


def fail(message: str, status: int) -> NoReturn:
    """Prints one line and exits: status 2 for a wrong command line, 1 for anything else."""
    if sys.stderr is not None:
        try:
            print(f"nthbyte: {message}", file=sys.stderr)
        except OSError:
            # Nobody can read it.
            pass
    sys.exit(status)
