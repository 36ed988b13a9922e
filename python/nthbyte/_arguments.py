"""Reads the options of ``nthbyte run`` with argparse: for the help, and for messages about wrong options."""

from __future__ import annotations

import argparse
import os
from typing import Any, Callable, NoReturn

from nthbyte._command_line import fail
from nthbyte._options import DESCRIPTION, OPTIONS


class Parser(argparse.ArgumentParser):
    """Prints errors as the other commands do."""

    def error(self, message: str) -> NoReturn:
        fail(f"{message}; see {self.prog} --help", 2)

    def _print_message(self, message: str, file: Any = None) -> None:
        if file is None:
            return
        try:
            file.write(message)
            file.flush()
        except OSError:
            # Nobody reads the help any more. Its rest would fail again at the exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())


def parse(words: list[str]) -> dict[str, Any]:
    """Returns the options by name. Exits on an error, and after help."""
    parser = Parser(
        prog="nthbyte run",
        usage="nthbyte run [OPTIONS] (SCRIPT | PROGRAM | -m MODULE | -c CODE) [ARGS...]",
        description=f"{DESCRIPTION}.",
        epilog="It profiles the interpreter that runs nthbyte. For PyPy: pypy3 -m nthbyte run app.py. A program of "
        "native code needs no Python: nthbyte run -- ./program",
        allow_abbrev=False,
    )
    for option in OPTIONS:
        # Options of other interpreters are accepted here: `check` refuses them with a better message.
        text = option.help.replace("%", "%%") if option.is_here() else argparse.SUPPRESS
        if option.placeholder:
            parser.add_argument(
                *option.flags,
                metavar=option.placeholder,
                type=_reader(option.read),
                default=option.default,
                help=text,
                # An option whose value may be missing takes a number only: see Option.takes.
                **({} if option.alone is None else {"nargs": "?", "const": option.alone}),
            )
        elif option.has_opposite:
            parser.add_argument(option.flag, action=argparse.BooleanOptionalAction, help=text)
        else:
            action = "store_false" if option.default else "store_true"
            parser.add_argument(*option.flags, dest=option.name, action=action, help=text)
    return vars(parser.parse_args(words))


def _reader(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def read_or_explain(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            reason = f"{text!r} is not a whole number" if read is int else str(error)
            raise argparse.ArgumentTypeError(reason) from None

    return read_or_explain
