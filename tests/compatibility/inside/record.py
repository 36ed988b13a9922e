"""Runs a module or a script, and records the outcome of each test of unittest in it.

Usage: record.py OUTCOMES (-m MODULE | SCRIPT) [ARGUMENT...]

Each outcome is a line in the file OUTCOMES: see outcome_lines.py. It runs inside of the interpreter that is tested:
Python 3.9 and later, the standard library only.
"""

import functools
import os
import runpy
import sys
import unittest

from outcome_lines import OutcomeLines

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
        self.lines = OutcomeLines(path)
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
        if isinstance(detail, tuple):
            detail = f"{detail[0].__name__}: {detail[1]}"
        self.lines.write(test.id(), outcome, str(detail or ""))


def main():
    """Runs the program that the arguments name, as Python would."""
    path, *words = sys.argv[1:]
    Recorder(path).install()
    sys.argv = words[1:] if words[0] == "-m" else words
    if words[0] == "-m":
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main()
