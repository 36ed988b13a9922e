"""A package is checked by pylint."""

import contextlib
import io
from pathlib import Path

import pathspec
from pylint.lint import Run

with contextlib.redirect_stdout(io.StringIO()):
    Run(["--persistent=n", str(Path(pathspec.__file__).parent)], exit=False)
