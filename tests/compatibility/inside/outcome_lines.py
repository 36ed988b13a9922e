"""The file of outcomes: a JSON line for each test, as outcomes.py reads it.

It runs inside of the interpreter that is tested: Python 3.9 and later, the standard library only.
"""

import json
import os
import re

# Tests replace functions of `os`, and change the directory.
_open, _write, _close, _getpid = os.open, os.write, os.close, os.getpid
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class OutcomeLines:
    """Writes each outcome at once, so that it is there if the program crashes or has to be ended."""

    def __init__(self, path):
        self._path = os.path.abspath(path)
        self._process = _getpid()

    def write(self, name, outcome, reason):
        """Adds a line, unless this is a child of the process that made the object.

        What differs in a name from run to run, the addresses of objects, is left out.
        """
        if _getpid() != self._process:
            return
        name = re.sub(r"\b0x[0-9a-fA-F]+", "0x", name)
        line = {"id": name, "outcome": outcome, "reason": reason[:500]}
        file = _open(self._path, _FLAGS, 0o600)
        try:
            _write(file, json.dumps(line).encode() + b"\n")
        finally:
            _close(file)
