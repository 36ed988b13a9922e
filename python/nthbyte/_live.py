"""``nthbyte live -- COMMAND``: runs a program under nthbyte, and shows its profile in the terminal while it grows."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

from nthbyte._agent import COMMAND
from nthbyte._command_line import fail, read


def main(view: list[str], words: list[str]) -> int:
    """Runs the program given by ``words``, as after ``nthbyte run``, and the view with the options of ``view``.

    Returns the view's exit status. The program's output goes into a file. When the view ends, so does the program.
    """
    options_of_view = iter(view)
    for word in options_of_view:
        name, equals, _ = word.partition("=")
        if name not in ("--by", "--label") or (not equals and next(options_of_view, None) is None):
            fail(f"before --, live takes --by ROWS and --label KEY=VALUE, not {word}", 2)
    if not words:
        fail("nothing to run: nthbyte live -- (SCRIPT | -m MODULE | -c CODE) [ARGS...]", 2)
    options, program = read(words)
    if not sys.stdout.isatty():
        fail("live needs a terminal; nthbyte run records without one", 1)
    path = options["output"] or program.default_output
    if path.startswith("-"):
        # No command takes it for an option then.
        path = os.path.join(os.curdir, path)
    if os.path.exists(path) and not options["force"]:
        fail(f"{path} exists: name another profile with -o, or replace it with -f", 1)
    if options["output"] is None:
        words = ["-o", path, *words]
    output = f"{path}.out"
    try:
        file = open(output, "wb")
    except OSError as error:
        fail(f"the program's output cannot be kept in {output}: {error.strerror}", 1)
    with file:
        child = subprocess.Popen(
            [sys.executable, "-m", "nthbyte", "run", "-q", *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        status = subprocess.call([COMMAND, "live", *view, os.path.abspath(path), "--writer", str(child.pid)])
    finally:
        child.terminate()
        child.wait()
    said = ""
    if os.path.getsize(output):
        said = f"; what the program has printed is in {shlex.quote(output)}"
    else:
        os.unlink(output)
    if os.path.exists(path):
        print(f"nthbyte: see it with: nthbyte explain {shlex.quote(path)}{said}", file=sys.stderr)
    elif said:
        print(f"nthbyte: there is no profile{said}", file=sys.stderr)
    return status
