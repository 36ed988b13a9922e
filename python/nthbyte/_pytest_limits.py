"""Limits of tests: the markers of pytest-memray, with its sizes and messages, and ``limit_allocated``.

A test with a limit is recorded by itself, with every allocation, from the call of its function to its return. So limits
are exact, and ``>=``: 2048 bytes exceed "2 KB". The recording of the run is interrupted meanwhile.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from nthbyte._agent import COMMAND, Error, load
from nthbyte._pytest_leaked import LeakedObjects
from nthbyte._pytest_run import show
from nthbyte._session import begin, configure, finish, is_running

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from types import CodeType
    from typing import Any, Callable

    from nthbyte._config import Config
    from nthbyte._pytest_run import Run

# Of pytest-memray, only one of them can be on a test.
_ONE_OF = ("limit_memory", "limit_leaks", "limit_leaked_objects")
_ALL = (*_ONE_OF, "limit_allocated")

_SIZE = re.compile(r"\s*\+?(\d*\.\d+|\d+)\s*([KMGTP]?)I?B\s*$", re.IGNORECASE)
_FACTORS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}

# Frames of a stack, and stacks, in the report of a test that exceeds its limit.
_FRAMES = 8
_STACKS = 10


class StackFrame:
    """A frame of a stack, as the ``filter_fn`` of ``limit_leaks`` gets it."""

    def __init__(self, function: str, filename: str, lineno: int):
        self.function = function
        self.filename = filename
        self.lineno = lineno


class Stack:
    """Where memory was allocated: ``frames``, the innermost first."""

    def __init__(self, frames: tuple[StackFrame, ...]):
        self.frames = frames


class Limits:
    """The plugin's object in a process that runs tests with limits."""

    def __init__(self, config: pytest.Config, run: Run | None, limited: list[pytest.Item], names: set[str]):
        """``limited``: the tests with limits. ``names``: the markers that are judged here."""
        self._config = config
        self._names = names
        self.calls: int = config.option.nthbyte_leaks or 1
        """How often each test is called."""
        self._run = run
        self._estimates = run is not None and bool(config.option.nthbyte_estimate)
        self._recorded_in: dict[str, tuple[str, _Call]] = {}
        self._leaked: dict[str, list[object]] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._number = 0
        if run is not None:
            run.is_recorded_alone = self.is_exact
            for item in limited:
                if self._estimates and not self.is_exact(item):
                    run.estimated[item.nodeid] = [
                        (marker.name, parse_size(_limit(marker)))
                        for marker in item.iter_markers()
                        if marker.name in names
                    ]

    def is_exact(self, item: pytest.Item) -> bool:
        """Whether a test is recorded by itself. What it leaves alive is never estimated."""
        names = self._markers(item)
        if self.calls > 1:
            return True
        return bool(names.intersection(("limit_leaks", "limit_leaked_objects")) if self._estimates else names)

    def _markers(self, item: pytest.Item) -> set[str]:
        return {marker.name for marker in item.iter_markers() if marker.name in self._names}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: Any) -> Generator[None, None, None]:
        """Records the call of a test with a limit."""
        with self._recording(pyfuncitem):
            yield

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: Any) -> Generator[None, None, None]:
        """Records the call of a method of a ``unittest.TestCase``, which is not made by the hook above."""
        unittest = sys.modules.get("unittest")
        instance = getattr(item, "instance", None)
        if unittest is None or not isinstance(instance, unittest.TestCase):
            yield
            return
        with self._recording(item):
            if not inspect.iscoroutinefunction(item.obj):
                yield
                return
            # Of these, pytest does not hand its own function over.
            setattr(instance, item.name, item.obj)
            try:
                yield
            finally:
                delattr(instance, item.name)

    @contextlib.contextmanager
    def _recording(self, item: Any) -> Generator[None, None, None]:
        """While it lasts, the function of a test with a limit records itself."""
        if not self.is_exact(item):
            yield
            return
        names = self._markers(item)
        if len(names.intersection(_ONE_OF)) > 1:
            # The words of pytest-memray.
            raise ValueError("Only one Memray marker can be applied to each test")
        function = item.obj
        item.obj = self._recorded(item, function, "limit_leaked_objects" in names)
        try:
            yield
        finally:
            # Plugins that run a test again take the function from here.
            item.obj = function

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Generator[None, Any, None]:
        """A test that passed, and has exceeded its limit, fails."""
        outcome = yield
        report = outcome.get_result()
        if call.when != "call":
            return
        leaked = self._leaked.pop(item.nodeid, None)
        path = self._recorded_in.pop(item.nodeid, None)
        try:
            exact = None if path is None else self._figures(item, path)
        except Error as error:
            exact = None
            if report.outcome == "passed":
                report.outcome, report.longrepr = "failed", f"nthbyte: {error}"
        # A limit is of one call.
        if report.outcome != "passed" or self.calls > 1:
            return
        for marker in item.iter_markers():
            if marker.name == "limit_leaked_objects" and leaked is not None:
                problem = _leaked_objects(leaked, **marker.kwargs)
            elif marker.name in self._names and exact is not None:
                problem = self._judge(item, marker, exact)
            else:
                continue
            if problem is not None:
                report.outcome = "failed"
                report.longrepr, section = problem
                # For the process that shows the report.
                report.nthbyte_limit = marker.name
                if section is not None:
                    report.sections.append(section)
                outcome.force_result(report)

    def pytest_unconfigure(self) -> None:
        """Removes the profiles of single tests."""
        if self._folder is not None:
            self._folder.cleanup()

    def _recorded(self, item: pytest.Item, function: Callable[..., Any], finds_objects: bool) -> Any:
        """Returns the function that runs a test and records it."""
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        is_async = inspect.iscoroutinefunction(function)
        # The tasks of a coroutine do not have it on their stacks.
        call = _Call(None if is_async else code)
        recording = _Recording(self, item, call, LeakedObjects() if finds_objects else None)

        @functools.wraps(function)
        def call_test(*arguments: Any, **named: Any) -> Any:
            recording.begin()
            try:
                result = function(*arguments, **named)
                for _ in range(1, self.calls):
                    call.times.append(time.monotonic_ns())
                    try:
                        function(*arguments, **named)
                    except (Exception, pytest.skip.Exception, pytest.fail.Exception):
                        # It is not made to run twice: then it is not known what it leaks.
                        call.times.clear()
                        break
                return result
            finally:
                recording.end()

        @functools.wraps(function)
        async def async_call_test(*arguments: Any, **named: Any) -> Any:
            recording.begin()
            try:
                return await function(*arguments, **named)
            finally:
                recording.end()

        return async_call_test if is_async else call_test

    def begin(self) -> str:
        """Starts the recording of a test in place of the run's. Returns its profile's path."""
        if self._run is not None:
            self._run.recorder.pause()
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="nthbyte-")
        self._number += 1
        path = os.path.join(self._folder.name, f"{self._number}.nthb")
        return begin(_every(path, self.calls > 1))

    def end(self, item: pytest.Item, path: str, call: _Call, leaked: list[object] | None) -> None:
        """Ends it."""
        try:
            finish()
        except Error:
            # The test has stopped it.
            return
        self._recorded_in[item.nodeid] = (path, call)
        if leaked is not None:
            self._leaked[item.nodeid] = leaked

    def _figures(self, item: pytest.Item, recorded: tuple[str, _Call]) -> dict[str, Any]:
        """The figures of a test. Raises Error if they cannot be read."""
        path, call = recorded
        try:
            options = ["--allocated"] if "limit_allocated" in self._markers(item) else []
            if self._counts_arenas() and sys.implementation.name == "cpython":
                options.append("--arenas")
            exact = _measure(path, call, options)
            if any(marker.kwargs.get("current_thread_only") for marker in item.iter_markers()):
                exact["of_thread"] = _measure(path, call, [*options, "--thread", str(call.thread)])
        finally:
            os.unlink(path)
        if self._run is not None:
            knows_lives = sys.implementation.name == "cpython"
            figures = {
                "duration_nanos": 0,
                "allocated": exact["allocated"],
                "allocations": exact["allocations"],
                "peak": exact["peak_whole"] if knows_lives else None,
                "left": exact["left"] if knows_lives else None,
                "left_by": exact["left_origin"] if knows_lives else None,
            }
            self._run.recorder.add_measured(item.nodeid, figures)
            for leak in exact["leaks"]:
                self._run.leaks.append({"test": item.nodeid, **leak, "stack": leak["stack"][:1]})
            if self.calls > 1 and not call.times:
                self._run.not_repeated.append(item.nodeid)
        return exact

    def _counts_arenas(self) -> bool:
        return not getattr(self._config.option, "trace_python_allocators", False)

    def _judge(self, item: pytest.Item, marker: Any, exact: dict[str, Any]) -> Any:
        """Returns the failure: its text, and a section of the report; None if nothing is."""
        limit = parse_size(_limit(marker))
        if marker.kwargs.get("current_thread_only"):
            exact = exact["of_thread"]
        if marker.name == "limit_leaks":
            return _leaks(limit, exact, marker.kwargs.get("filter_fn"), self._frames())
        if marker.name == "limit_allocated":
            if exact["allocated"] < limit:
                return None
            text = (
                f"Test was limited to allocate {show(limit)} in all but allocated {show(exact['allocated'])}"
            )
            return text, self._section("nthbyte-allocated", exact["allocated_by"], exact["allocations"])
        if self._has_grown(item, exact["peak"]):
            before = self._previous
            text = f"Test previously used {show(before)} but now uses {show(exact['peak'])}"
            return text, ("nthbyte-max-memory", "Test uses more memory than previous run")
        if exact["peak"] < limit:
            return None
        text = f"Test was limited to {show(limit)} but allocated {show(exact['peak'])}"
        return text, self._section("nthbyte-max-memory", exact["at_peak"])

    def _has_grown(self, item: pytest.Item, peak: int) -> bool:
        """Whether ``--fail-on-increase`` is given and the test needs more than in its last run."""
        cache = getattr(self._config, "cache", None)
        if cache is None:
            return False
        key = f"nthbyte/{item.nodeid}"
        previous = cache.get(key, {}).get("peak")
        if (
            getattr(self._config.option, "fail_on_increase", False)
            and previous is not None
            and peak > previous
        ):
            self._previous = previous
            return True
        cache.set(key, {"peak": peak})
        return False

    def _section(
        self, title: str, stacks: list[dict[str, Any]], count: int | None = None
    ) -> tuple[str, str] | None:
        """The stacks with most bytes; ``count`` is the number of all allocations, if it is shown."""
        verbosity = self._config.get_verbosity()
        try:
            verbosity = int(self._config.getini("verbosity_memray"))
        except ValueError:
            # There is no such setting here, or it is "auto".
            pass
        if verbosity < 0:
            return None
        shown = stacks if verbosity >= 2 else stacks[:_STACKS]
        body = _stacks(shown, self._frames())
        if len(stacks) > len(shown):
            body += f"\n    ...and {len(stacks) - len(shown)} more"
        return title, f"List of {'' if count is None else f'{count} '}allocations:\n{body}"

    def _frames(self) -> int:
        options = self._config.option
        frames = options.nthbyte_stacks or getattr(options, "stacks", None) or _FRAMES
        return max(int(frames), 1)


class _Call:
    """The call of a test's function."""

    def __init__(self, code: CodeType | None):
        self.code = code
        self.thread = 0
        self.clock = 0
        """The reading of the clock at which the times of its profile begin."""
        self.times: list[int] = []
        """When it was called again."""


class _Recording:
    """The recording of one test."""

    def __init__(self, limits: Limits, item: pytest.Item, call: _Call, objects: LeakedObjects | None):
        self._limits = limits
        self._item = item
        self._call = call
        self._objects = objects
        self._path: str | None = None

    def begin(self) -> None:
        self._call.thread = threading.get_native_id()
        self._call.times.clear()
        self._path = self._limits.begin()
        self._call.clock = load().clock_start() or 0
        if self._objects is not None:
            self._objects.begin()

    def end(self) -> None:
        leaked = None if self._objects is None else self._objects.end()
        if self._path is not None:
            self._limits.end(self._item, self._path, self._call, leaked)


def refuse_if_recorded() -> None:
    """Raises UsageError if there is no recording of a test's own to be had."""
    if is_running():
        raise pytest.UsageError(
            "a test with a limit is recorded by itself, and this process is recorded already: leave out nthbyte run"
        )


def _limit(marker: Any) -> object:
    """The size of a marker."""
    names = ("limit", "location_limit")
    return (
        marker.args[0]
        if marker.args
        else next(marker.kwargs[name] for name in names if name in marker.kwargs)
    )


def check(item: pytest.Item) -> None:
    """Raises UsageError for a limit that cannot be read."""
    for marker in item.iter_markers():
        if marker.name not in _ALL:
            continue
        known = {"limit_leaked_objects": ("filter_fn",), "limit_leaks": ("filter_fn", "current_thread_only")}
        names = known.get(marker.name, ("current_thread_only",))
        first = "location_limit" if marker.name == "limit_leaks" else "limit"
        try:
            values = [*marker.args, *(value for name, value in marker.kwargs.items() if name == first)]
            unknown = [name for name in marker.kwargs if name not in (*names, first)]
            if unknown:
                raise ValueError(f"it has no {unknown[0]}")
            if marker.name == "limit_leaked_objects":
                if values:
                    raise ValueError("it takes filter_fn by name only")
                continue
            if len(values) != 1:
                raise ValueError('it takes one size, such as "24 MB"')
            parse_size(values[0])
        except ValueError as error:
            raise pytest.UsageError(f"{item.nodeid}: {marker.name}: {error}") from None


def parse_size(text: object) -> float:
    """Returns the bytes of a size: ``24 MB`` are 24 MiB, as for pytest-memray; ``24 MiB`` is the same.

    Raises ValueError with one line.
    """
    match = _SIZE.match(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f'Invalid memory size format: {text}; write "24 MB", "512 KB" or "100 B"')
    number, unit = match.groups()
    return float(number) * 1024.0 ** _FACTORS[unit.upper()]


def _every(path: str, with_holders: bool) -> Config:
    from nthbyte._options import OPTIONS

    defaults: dict[str, Any] = {option.name: option.default for option in OPTIONS if option.is_argument}
    # Limits are about the bytes asked for, as pytest-memray's are.
    return {
        **configure(path, {**defaults, "every": 1, "holders": with_holders or None}),
        "whole_mappings": True,
    }


def _measure(path: str, call: _Call, options: list[str]) -> dict[str, Any]:
    """The figures of a test's profile."""
    command = [COMMAND, "measure-test", path, *options]
    if call.code is not None:
        command += ["--test", str(call.thread), str(call.code.co_firstlineno), call.code.co_filename]
    if call.times:
        command += ["--repetitions", ",".join(str(when - call.clock) for when in call.times)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise Error(f"the limit cannot be judged: {done.stderr.strip()}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def _leaks(limit: float, exact: dict[str, Any], keeps: Any, frames: int) -> Any:
    def counts(one: dict[str, Any]) -> bool:
        if one["bytes"] < limit:
            return False
        stack = tuple(StackFrame(_short(name), file, line) for name, file, line in one["stack"])
        return keeps is None or bool(keeps(Stack(stack)))

    leaks = [one for one in exact["left_by"] if counts(one)]
    if not leaks:
        return None
    text = f"Test was allowed to leak {show(limit)} per location but at least one location leaked more"
    return text, ("nthbyte-leaked-memory", f"List of leaked allocations:\n{_stacks(leaks, max(frames, 5))}")


def _leaked_objects(leaked: list[object], filter_fn: Any = None) -> Any:
    from nthbyte._pytest_leaked import described

    kept = [one for one in leaked if filter_fn is None or filter_fn(one)]
    if not kept:
        return None
    return f"Test leaked {len(kept)} objects", (
        "nthbyte-leaked-objects",
        f"List of leaked objects:\n{described(kept)}",
    )


def _short(name: str) -> str:
    """The function's own name, without its class's."""
    return name.rsplit(".", 1)[-1]


def _stacks(stacks: list[dict[str, Any]], most: int) -> str:
    lines = []
    for one in stacks:
        lines.append(f"    - {show(one['bytes'])} allocated here:")
        for name, file, line in one["stack"][:most]:
            lines.append(f"        {_short(name)}:{file}:{line}")
        if len(one["stack"]) > most:
            lines.append("        ...")
    return "\n".join(lines)
