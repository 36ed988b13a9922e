"""The plugin for pytest: its options, and nothing else until ``--nthbyte`` is given.

pytest imports this module in every run. So it imports nothing that pytest has not, and loads the rest of nthbyte
only for ``--nthbyte``.
"""

from __future__ import annotations

import os

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("nthbyte", "memory profile (nthbyte)")
    add = group.addoption
    add(
        "--nthbyte", action="store_true", help="record what each test allocates, and show the tests with most"
    )
    add(
        "--nthbyte-output",
        metavar="FILE",
        help="the profile's file (default: nthbyte-pytest.PID.nthb)",
    )
    add("--nthbyte-every", metavar="SIZE", help="mean distance between samples; 1 records every allocation")
    add("--nthbyte-top", metavar="N", type=int, help="tests in each table (default: 5; 0 for all)")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Starts the recording before any file of the project is imported."""
    options = early_config.known_args_namespace
    # A worker of xdist waits for what its controller tells it.
    if is_on(options) and "PYTEST_XDIST_WORKER" not in os.environ:
        _begin(early_config, options)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Starts it in a worker of xdist, which knows only now that it is one."""
    options = config.option
    if is_on(options) and not config.pluginmanager.has_plugin("nthbyte_run"):
        _begin(config, options)


def is_on(options: Any) -> bool:
    """Whether the run is recorded."""
    if any(getattr(options, name, False) for name in ("help", "version", "collectonly")):
        return False
    return bool(options.nthbyte)


def _begin(config: pytest.Config, options: Any) -> None:
    from nthbyte._pytest_run import Run

    config.pluginmanager.register(Run(config, options), "nthbyte_run")
