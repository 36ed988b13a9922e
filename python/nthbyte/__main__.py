"""The command ``nthbyte``, also ``python -m nthbyte``.

``run``, ``tune`` and ``check`` work with this interpreter. All other commands read profiles: this process
executes another program for them, which is written in Rust.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nthbyte._run import Running

COMMAND = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "nthbyte")


def main() -> Running | None:
    """Runs the command that ``sys.argv`` asks for.

    For ``nthbyte run`` it starts the session and returns the program. The caller executes the program, so that no
    frame of this function is on the program's stack.
    """
    arguments = sys.argv[1:]
    if arguments[:1] == ["run"]:
        try:
            _prepare(arguments)
            from nthbyte._run import start

            return start(arguments[1:])
        except (MemoryError, ImportError) as error:
            if isinstance(error, ImportError):
                from nthbyte._agent import has_no_room

                if not has_no_room(error):
                    raise
            sys.exit("nthbyte: no memory for a session; raise the memory limit")
    if arguments[:1] == ["tune"]:
        from nthbyte.tune import main as tune

        sys.exit(tune(arguments[1:]))
    if arguments[:1] == ["live"] and "--" in arguments:
        from nthbyte._live import main as live

        program = arguments.index("--")
        sys.exit(live(arguments[1:program], arguments[program + 1 :]))
    if arguments[:1] == ["check"]:
        from nthbyte.check import main as check

        sys.exit(check(arguments[1:]))
    try:
        os.execv(COMMAND, ["nthbyte", *arguments])
    except OSError as error:
        sys.exit(f"nthbyte: cannot run {COMMAND}: {error.strerror}; install nthbyte again")


def _prepare(arguments: list[str]) -> None:
    """Installs the heap before other imports, so that their modules lie in it and not in CPython's own arenas."""
    if sys.implementation.name != "cpython" or any(word.startswith("--huge-pages") for word in arguments):
        return
    from nthbyte._agent import Error, load

    try:
        load().prepare()
    except Error:
        # The start of the session fails for the same reason, and prints it.
        pass


if __name__ == "__main__":
    running = main()
    if running is not None:
        running.execute()
