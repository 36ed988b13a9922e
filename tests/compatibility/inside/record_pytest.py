"""A plugin of pytest that records the outcome of each test, in the same lines as record.py.

Usage: pytest -p record_pytest --outcomes OUTCOMES
"""

import json
import os
import re

import pytest

_open, _write, _close, _getpid = os.open, os.write, os.close, os.getpid
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


def pytest_addoption(parser):
    parser.addoption("--outcomes", metavar="FILE", help="writes the outcome of each test into a file")


def pytest_configure(config):
    path = config.getoption("--outcomes")
    if path:
        config.pluginmanager.register(_Recorder(os.path.abspath(path)), "nthbyte-outcomes")


class _Recorder:
    def __init__(self, path):
        self.path = path
        self.process = _getpid()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report):
        if hasattr(report, "wasxfail"):
            self._record(report, "failed as expected" if report.skipped else "passed unexpectedly")
        elif report.failed:
            self._record(report, "failed" if report.when == "call" else "error")
        elif report.skipped or report.when == "call":
            self._record(report, report.outcome)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report):
        if report.failed or report.skipped:
            self._record(report, "error" if report.failed else "skipped")

    def _record(self, report, outcome):
        if _getpid() != self.process:
            return
        name = re.sub(r"\b0x[0-9a-fA-F]+", "0x", report.nodeid)
        line = {"id": name, "outcome": outcome, "reason": _reason(report)[:500]}
        file = _open(self.path, _FLAGS, 0o600)
        try:
            _write(file, json.dumps(line).encode() + b"\n")
        finally:
            _close(file)


def _reason(report):
    """Returns why a test was skipped, or the last line of its failure."""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2]
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return crash.message
    return str(report.longrepr or "")[-500:]
