"""The command ``nthbyte``, also ``python -m nthbyte``.

What runs a Python program happens here, in the interpreter that is to be profiled; what reads a
profile is a program of its own, in Rust, which takes this one's place.
"""

from __future__ import annotations

import os
import sys

COMMAND = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "nthbyte")


def main() -> None:
    """Runs the command that ``sys.argv`` asks for."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["run"]:
        _prepare(arguments)
        from nthbyte._run import main as run

        run(arguments[1:])
    elif arguments[:1] == ["tune"]:
        from nthbyte.tune import main as tune

        sys.exit(tune(arguments[1:]))
    else:
        try:
            os.execv(COMMAND, ["nthbyte", *arguments])
        except OSError as error:
            sys.exit(f"nthbyte: cannot run {COMMAND}: {error.strerror}; install nthbyte again")


def _prepare(arguments: list[str]) -> None:
    """Puts the heap in place before more is imported, so that this lies in it and not in arenas beside it."""
    if sys.implementation.name != "cpython" or any(word.startswith("--huge-pages") for word in arguments):
        return
    from nthbyte._agent import Error, load

    try:
        load().prepare()
    except Error:
        # Where nothing can be profiled, this is said when it is tried.
        pass


if __name__ == "__main__":
    main()
