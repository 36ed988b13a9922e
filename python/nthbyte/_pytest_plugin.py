"""The plugin for pytest: its options and markers, and nothing else until one of them is used.

pytest imports this module in every run. So it imports nothing that pytest has not, and loads the rest of nthbyte
only for ``--nthbyte``, or for a test with a limit.
"""

from __future__ import annotations

import os
import sys

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

MARKERS = {
    "limit_memory": "limit_memory(limit, current_thread_only=False): fail the test if more than that, such as "
    '"24 MB", is in use at one time',
    "limit_leaks": "limit_leaks(location_limit, filter_fn=None, current_thread_only=False): fail the test if one "
    "place leaves more than that alive",
    "limit_leaked_objects": "limit_leaked_objects(filter_fn=None): fail the test if it leaves objects alive",
    "limit_allocated": "limit_allocated(limit, current_thread_only=False): fail the test if it allocates more than "
    "that in all",
}

# What pytest-memray calls its plugin's object.
_MEMRAY = "memray_manager"

# Its options without a value.
_SWITCHES = ("memray", "hide_memray_summary", "trace_python_allocators", "fail_on_increase")

# What to use in place of its options that are not there.
_INSTEAD = {
    "memray_bin_path": "use --nthbyte-output, which names the profile",
    "memray_bin_prefix": "use --nthbyte-output, which names the profile",
    "native": "nthbyte run --native-frames -m pytest has native frames",
}


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Adds the options. pytest-memray's are added unless it is installed, so that a project may switch."""
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
    add(
        "--nthbyte-every",
        metavar="SIZE",
        help="mean distance between samples (default: 128KiB); 1 records everything, auto follows the program",
    )
    add(
        "--nthbyte-stacks",
        metavar="N",
        type=int,
        help="frames of each stack, of a test that exceeds its limit",
    )
    add("--nthbyte-top", metavar="N", type=int, help="tests in each table (default: 5; 0 for all)")
    add(
        "--nthbyte-estimate",
        action="store_true",
        help="judge limits by the samples of the whole run, at no cost, at the end",
    )
    add(
        "--nthbyte-baseline",
        metavar="FILE",
        help="fail the run if a test has surely grown since the run that made this file",
    )
    add("--nthbyte-update-baseline", action="store_true", help="make that file of this run")
    add(
        "--nthbyte-leaks",
        metavar="N",
        type=int,
        help="call each test N times, and show what each call leaves alive; limits are not judged then",
    )
    add("--nthbyte-junit", action="store_true", help="add the figures of tests to the file of --junit-xml")
    add("--nthbyte-github", action="store_true", help="print annotations for GitHub")
    if not _has_memray(pluginmanager):
        add(
            "--memray",
            action="store_true",
            help="the same as --nthbyte, for projects that used pytest-memray",
        )
        add("--most-allocations", metavar="N", type=int, help="the same as --nthbyte-top")
        add("--hide-memray-summary", action="store_true", help="show no tables")
        add(
            "--trace-python-allocators",
            action="store_true",
            help="limits count each small object, not the whole MiB that the interpreter takes for them",
        )
        add(
            "--fail-on-increase",
            action="store_true",
            help="fail a test with limit_memory that uses more than in its last run",
        )
        add("--stacks", metavar="N", type=int, help="the same as --nthbyte-stacks")
        parser.addini("verbosity_memray", "how much a test that exceeds limit_memory shows", default="auto")
        for name in _SWITCHES:
            parser.addini(_ini_name(name), f"the same as {_flag(name)}", type="bool")
        for name in ("most_allocations", "stacks"):
            parser.addini(name, f"the same as {_flag(name)}")
        parser.addini("native", f"not there: {_INSTEAD['native']}", type="bool")
        add("--native", action="store_true", help=f"not there: {_INSTEAD['native']}")
        for name in ("memray_bin_path", "memray_bin_prefix"):
            add(_flag(name), help=f"not there: {_INSTEAD[name]}")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Starts the recording before any file of the project is imported."""
    options = early_config.known_args_namespace
    # A worker of xdist waits for what its controller tells it.
    if is_on(early_config, options) and "PYTEST_XDIST_WORKER" not in os.environ:
        _begin(early_config, options)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Declares the markers, and starts the recording in a worker of xdist."""
    for line in MARKERS.values():
        config.addinivalue_line("markers", line)
    options = config.option
    if not _has_memray(config.pluginmanager):
        _read_settings(config)
    for name, instead in _INSTEAD.items():
        if getattr(options, name, None) and not _has_memray(config.pluginmanager):
            raise pytest.UsageError(f"{_flag(name)} is an option of pytest-memray: with nthbyte, {instead}")
    if options.nthbyte and getattr(options, "memray", False) and _has_memray(config.pluginmanager):
        raise pytest.UsageError("--nthbyte and --memray record the same memory: leave one of them out")
    _check(options)
    if is_on(config, options) and not config.pluginmanager.has_plugin("nthbyte_run"):
        _begin(config, options)


def _check(options: Any) -> None:
    """Raises UsageError for options that say nothing together."""
    if not (options.nthbyte or options.nthbyte_leaks or getattr(options, "memray", False)):
        for name in ("estimate", "baseline", "junit", "github"):
            if getattr(options, f"nthbyte_{name}"):
                raise pytest.UsageError(f"--nthbyte-{name} needs --nthbyte, which records the run")
    if options.nthbyte_leaks and sys.implementation.name != "cpython":
        raise pytest.UsageError("--nthbyte-leaks needs CPython: PyPy does not say when objects are freed")
    if options.nthbyte_leaks is not None and options.nthbyte_leaks < 3:
        raise pytest.UsageError(
            "--nthbyte-leaks takes 3 or more: the first call fills caches, and two do not tell"
        )
    if options.nthbyte_update_baseline and not options.nthbyte_baseline:
        raise pytest.UsageError("--nthbyte-update-baseline needs --nthbyte-baseline FILE")
    path = options.nthbyte_baseline
    if path and not options.nthbyte_update_baseline and not os.path.exists(path):
        raise pytest.UsageError(f"there is no baseline {path}: make it with --nthbyte-update-baseline")
    if options.nthbyte_junit and not getattr(options, "xmlpath", None):
        raise pytest.UsageError("--nthbyte-junit needs --junit-xml FILE, to which it adds figures")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Loads the part that judges limits, if a test has one."""
    config = session.config
    manager = config.pluginmanager
    names = set(MARKERS)
    if manager.has_plugin(_MEMRAY):
        if is_on(config, config.option):
            # Two recordings of the same memory disturb each other.
            manager.unregister(name=_MEMRAY)
        else:
            names = {"limit_allocated"}
    if sys.implementation.name != "cpython":
        unknown = names - {"limit_allocated"}
        if any(name in item.keywords for item in session.items for name in unknown):
            text = (
                f"{', '.join(sorted(unknown))}: not judged, because PyPy does not say when objects are freed"
            )
            config.issue_config_time_warning(pytest.PytestWarning(f"nthbyte: {text}"), stacklevel=2)
        names -= unknown
    limited = [item for item in session.items if any(name in item.keywords for name in names)]
    if limited and config.option.nthbyte_leaks:
        text = "nthbyte: --nthbyte-leaks calls each test several times, so no limits are judged"
        config.issue_config_time_warning(pytest.PytestWarning(text), stacklevel=2)
    if (limited or config.option.nthbyte_leaks) and not config.option.collectonly:
        from nthbyte._pytest_limits import Limits, check, refuse_if_recorded

        if not is_on(config, config.option):
            refuse_if_recorded()
        for item in limited:
            check(item)
        if not manager.has_plugin("nthbyte_limits"):
            limits = Limits(config, manager.get_plugin("nthbyte_run"), limited, names)
            manager.register(limits, "nthbyte_limits")


@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_report_teststatus(report: Any) -> Generator[None, Any, None]:
    """A test that exceeds its limit has a letter of its own; here, because under xdist another process judges it."""
    outcome = yield
    if report.when == "call" and report.outcome == "failed" and hasattr(report, "nthbyte_limit"):
        outcome.force_result(("failed", "M", "MEMORY PROBLEMS"))


def is_on(config: pytest.Config, options: Any) -> bool:
    """Whether the run is recorded. ``options``: the command line's, as far as they are known."""
    if any(getattr(options, name, False) for name in ("help", "version", "collectonly")):
        return False
    if options.nthbyte or options.nthbyte_leaks:
        return True
    if _has_memray(config.pluginmanager):
        return False
    return bool(getattr(options, "memray", False) or config.getini("memray"))


def _read_settings(config: pytest.Config) -> None:
    """Takes options of pytest-memray from the project's settings, where the command line has none."""
    for name in (*_SWITCHES, "native", "most_allocations", "stacks"):
        value = getattr(config.option, name, None)
        if value is None or value is False:
            setattr(config.option, name, config.getini(_ini_name(name)) or None)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _ini_name(name: str) -> str:
    """The name of a setting: pytest-memray spells one of them as its option."""
    return name.replace("_", "-") if name == "fail_on_increase" else name


def _begin(config: pytest.Config, options: Any) -> None:
    from nthbyte._pytest_run import Run

    config.pluginmanager.register(Run(config, options), "nthbyte_run")


def _has_memray(manager: pytest.PytestPluginManager) -> bool:
    if manager.is_blocked("memray"):
        return False
    if "pytest_memray" in sys.modules:
        return True
    from importlib.util import find_spec

    return find_spec("pytest_memray") is not None
