"""Runs a module or a script, and records the outcome of each test of unittest in it.

Usage: record.py OUTCOMES (-m MODULE | SCRIPT) [ARGUMENT...]

Each outcome is a JSON line in the file OUTCOMES, written at once, so that they are there if the program crashes or
has to be ended. It runs inside of the interpreter that is tested: Python 3.9 and later, the standard library only.
"""

import functools
import json
import os
import re
import runpy
import sys
import unittest

# Tests replace functions of `os`, and change the directory.
_open, _write, _close, _getpid = os.open, os.write, os.close, os.getpid
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC

OUTCOMES = {
    "addSuccess": "passed",
    "addFailure": "failed",
    "addError": "error",
    "addSkip": "skipped",
    "addExpectedFailure": "failed as expected",
    "addUnexpectedSuccess": "passed unexpectedly",
}


class Recorder:
    """Writes the outcomes that the outermost runner is told; tests of test runners have runners of their own."""

    def __init__(self, path):
        self.path = path
        self.process = _getpid()
        self.running = None
        """The result object whose test is running."""

    def install(self):
        """Lets every TestResult report here."""
        for name, outcome in OUTCOMES.items():
            self._wrap(name, functools.partial(self._ended, outcome))
        self._wrap("startTest", self._started)
        self._wrap("stopTest", self._stopped)
        self._wrap("addSubTest", self._part_ended)

    def _wrap(self, name, see):
        original = getattr(unittest.TestResult, name)

        @functools.wraps(original)
        def method(result, *details):
            see(result, *details)
            return original(result, *details)

        setattr(unittest.TestResult, name, method)

    def _started(self, result, test):
        if self.running is None:
            self.running = result

    def _stopped(self, result, test):
        if self.running is result:
            self.running = None

    def _ended(self, outcome, result, test, detail=None):
        if self.running is None or self.running is result:
            self._record(test, outcome, detail)

    def _part_ended(self, result, test, part, error):
        if error is not None:
            failed = issubclass(error[0], test.failureException)
            self._ended("failed" if failed else "error", result, part, error)

    def _record(self, test, outcome, detail):
        if _getpid() != self.process:
            return
        if isinstance(detail, tuple):
            detail = f"{detail[0].__name__}: {detail[1]}"
        line = {"id": without_addresses(test.id()), "outcome": outcome, "reason": str(detail or "")[:500]}
        file = _open(self.path, _FLAGS, 0o600)
        try:
            _write(file, json.dumps(line).encode() + b"\n")
        finally:
            _close(file)


def without_addresses(text):
    """Returns a name of a test without what differs from run to run."""
    return re.sub(r"\b0x[0-9a-fA-F]+", "0x", text)


def main():
    """Runs the program that the arguments name, as Python would."""
    path, *words = sys.argv[1:]
    Recorder(os.path.abspath(path)).install()
    sys.argv = words[1:] if words[0] == "-m" else words
    if words[0] == "-m":
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main()
