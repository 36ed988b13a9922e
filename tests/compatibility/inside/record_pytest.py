"""A plugin of pytest that records the outcome of each test: see outcome_lines.py.

Usage: pytest -p record_pytest --outcomes OUTCOMES
"""

import pytest
from outcome_lines import OutcomeLines


def pytest_addoption(parser):
    parser.addoption("--outcomes", metavar="FILE", help="writes the outcome of each test into a file")


def pytest_configure(config):
    path = config.getoption("--outcomes")
    if path:
        config.pluginmanager.register(_Recorder(path), "nthbyte-outcomes")


class _Recorder:
    def __init__(self, path):
        self.lines = OutcomeLines(path)

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
        self.lines.write(report.nodeid, outcome, _reason(report))


def _reason(report):
    """Returns why a test was skipped, or the last line of its failure."""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2]
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return crash.message
    return str(report.longrepr or "")[-500:]
