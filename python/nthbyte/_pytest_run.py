"""``pytest --nthbyte``: records a run of tests, and shows the tests with most.

One recording lasts from the first conftest file to the end of the last test. It is interrupted for tests whose limit
is judged exactly. The plugin notes when which test, or which fixture that several tests share, is at work; the file
with these marks lies beside the profile, and ``nthbyte tests`` makes the tables from both.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import time

import pytest

from nthbyte._agent import COMMAND, Error, load
from nthbyte._children import child_path
from nthbyte._pytest_outputs import add_properties, annotation
from nthbyte._session import begin, configure, finish, is_running

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, Callable

    from nthbyte._config import Config

_NOBODY = -1

# The mean distance between samples. Tests are short: with a period that follows the program, which may be megabytes,
# most of them would have no sample.
_PERIOD = "128KiB"

# Rows of each table.
_TOP = 5


class Run:
    """The plugin's object in each process of a run."""

    def __init__(self, config: pytest.Config, options: Any):
        self.config = config
        self.options = options
        told = getattr(config, "workerinput", {}).get("nthbyte")
        self.is_worker = told is not None
        try:
            if told is None:
                self.recorder = Recorder(_first(options), None)
            else:
                family, of_first = json.loads(told)
                of_worker: Any = {**of_first, "output": child_path(family, os.getpid())}
                self.recorder = Recorder(of_worker, family)
            self.recorder.begin()
        except (Error, ValueError) as error:
            text = str(error)
            if is_running():
                text = "nthbyte records this process already: leave out --nthbyte, or nthbyte run"
            raise pytest.UsageError(f"nthbyte: {text}") from None
        self.of_workers: list[dict[str, Any]] = []
        self.missing_workers: list[str] = []
        self.estimated: dict[str, list[tuple[str, float]]] = {}
        """The limits that are judged at the end, by test."""
        self.is_recorded_alone: Callable[[pytest.Item], bool] = lambda _: False
        self.leaks: list[dict[str, Any]] = []
        """What each call of a test leaves: the test, bytes, blocks, where, and who holds it."""
        self.not_repeated: list[str] = []
        self._verdicts: list[str] = []
        self._annotations: list[str] = []
        self._rows: list[dict[str, Any]] = []

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        """The test's work begins."""
        if not self.is_recorded_alone(item):
            self.recorder.resume()
        with self.recorder.at_work(item.nodeid, None):
            yield

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """The test itself."""
        with self.recorder.at_work(item.nodeid, None):
            yield

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        """The fixtures of the test, and of what ends with it."""
        with self.recorder.at_work(item.nodeid, None):
            yield

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, None, None]:
        """A fixture that several tests share has its own row; any other one is part of its test."""
        scope = str(fixturedef.scope)
        if scope == "function":
            yield
            return
        name = _name(fixturedef)
        self.recorder.alive.add(self.recorder.owner(name, scope))
        with self.recorder.at_work(name, scope):
            yield

    def pytest_fixture_post_finalizer(self, fixturedef: Any) -> None:
        """It is torn down: its objects that are alive now, it leaves."""
        if str(fixturedef.scope) != "function":
            self.recorder.alive.discard(self.recorder.owner(_name(fixturedef), str(fixturedef.scope)))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """A worker of xdist joins the run."""
        node.workerinput["nthbyte"] = json.dumps(self.recorder.family())

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker has ended."""
        text = getattr(node, "workeroutput", {}).get("nthbyte")
        if text is None:
            self.missing_workers.append(node.gateway.id)
        else:
            self.of_workers.append(json.loads(text))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """All fixtures are torn down."""
        self.recorder.finish()
        told = {
            "marks": self.recorder.marks(),
            "estimated": self.estimated,
            "leaks": self.leaks,
            "not_repeated": self.not_repeated,
        }
        if self.is_worker:
            self.config.workeroutput["nthbyte"] = json.dumps(told)  # type: ignore[attr-defined]
            return
        for worker in self.of_workers:
            self.estimated.update(worker["estimated"])
            self.leaks += worker["leaks"]
            self.not_repeated += worker["not_repeated"]
        options = self.options
        if not (self.estimated or options.nthbyte_baseline or options.nthbyte_junit):
            return
        has_failed = self._judge(options.nthbyte_baseline, options.nthbyte_update_baseline)
        if has_failed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _judge(self, baseline: str | None, is_new: bool) -> bool:
        """Judges limits by samples, and growth since the baseline. Returns whether the run fails."""
        words = ["--baseline", baseline] if baseline and not is_new else []
        done = subprocess.run(
            [COMMAND, "tests", self.write_marks(), "--json", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            self._verdicts.append(done.stderr.strip())
            return True
        if baseline and is_new:
            with open(baseline, "w") as file:
                file.write(done.stdout)
            self._verdicts.append(f"nthbyte: {baseline} is the baseline of later runs")
        suite = json.loads(done.stdout)
        self._rows = suite["rows"]
        has_failed, lines = judged(self.estimated, self._rows)
        for growth in suite.get("changes", {}).get("grown", ()):
            has_failed = True
            was, now = show(growth["old"]["estimate"]), show(growth["new"]["estimate"])
            lines.append(
                f"nthbyte: {growth['name']} has grown since the baseline, {growth['figure']}: {was} to {now}"
            )
        self._verdicts += lines
        if self.options.nthbyte_github:
            for line in lines:
                text = line.partition(": ")[2]
                self._annotations.append(annotation(text.partition("::")[0], None, "nthbyte", text))
        return has_failed

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A test that exceeds its limit has an annotation."""
        marker = getattr(report, "nthbyte_limit", None)
        if self.options.nthbyte_github and marker is not None:
            file, line, _ = report.location
            self._annotations.append(annotation(file, line + 1, marker, str(report.longrepr)))

    def pytest_unconfigure(self) -> None:
        """Ends the recording where there was nothing to run, and completes what other plugins have written."""
        self.recorder.finish()
        if self.options.nthbyte_junit and self._rows and not self.is_worker:
            prefix = getattr(self.options, "junitprefix", None)
            add_properties(self.options.xmlpath, self._rows, prefix)

    def pytest_report_header(self) -> str:
        """Says where the profile is."""
        return f"nthbyte: {_shown(self.recorder.first_path)}"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Shows the tables."""
        if self.is_worker:
            return
        write = terminalreporter.write_line
        terminalreporter.write_sep("=", "nthbyte")
        path = self.write_marks()
        if not getattr(self.config.option, "hide_memray_summary", False):
            width = str(getattr(terminalreporter._tw, "fullwidth", 80))
            done = subprocess.run(
                [COMMAND, "tests", path, "--top", str(self._top()), *self._compared()],
                env={**os.environ, "COLUMNS": width},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
            )
            for line in (done.stdout or done.stderr).splitlines():
                write(line)
            write("")
        if self.options.nthbyte_leaks:
            for line in leak_lines(self.leaks, self.not_repeated, self.options.nthbyte_leaks, self._top()):
                write(line)
        for line in [*self._verdicts, *self._annotations]:
            write(line)
        for name in self.missing_workers:
            write(f"nthbyte: worker {name} has ended early: its tests are in no table")
        write(f"nthbyte: see more with: nthbyte explain {_shown(self.recorder.first_path)}")

    def _compared(self) -> list[str]:
        baseline = self.options.nthbyte_baseline
        return ["--baseline", baseline] if baseline and not self.options.nthbyte_update_baseline else []

    def _top(self) -> int:
        for name in ("nthbyte_top", "most_allocations"):
            value = getattr(self.config.option, name, None)
            if value is not None:
                return max(int(value), 0)
        return _TOP

    def write_marks(self) -> str:
        """Writes the file that says what ran when, for all processes of the run. Returns its path."""
        marks = joined([self.recorder.marks(), *(worker["marks"] for worker in self.of_workers)])
        path = marks_path(self.recorder.first_path)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(marks, file)
        return path


class Recorder:
    """The recordings of one process, and who is at work."""

    def __init__(self, config: Config, family: str | None):
        self._config = config
        self._family = family
        self._agent = load()
        self.first_path = config["output"]
        self.alive: set[int] = set()
        """The shared fixtures that are not torn down."""
        self._owners: dict[tuple[str, str | None], int] = {}
        self._labels: list[str] = []
        """What the samples of each owner are labelled with, as the tables call it."""
        self._stack = [_NOBODY]
        self._switches: list[tuple[int, int]] = []
        self._recordings: list[dict[str, Any]] = []
        self._measured: list[dict[str, Any]] = []
        self._path: str | None = None
        self._has_finished = False

    def begin(self) -> None:
        """Starts a recording. Raises Error if that is not possible."""
        output = self._config["output"]
        is_first = not self._recordings
        family = self._family if is_first else self.family_path
        if not is_first:
            output = child_path(self.family_path, os.getpid())
        path = begin({**self._config, "output": output}, family=family)
        if is_first:
            self.first_path = path
        self._path = path
        self._recordings.append({"profile": os.path.basename(path), "clock": self._agent.clock_start() or 0})
        self._switches = []
        self._switch()

    @property
    def family_path(self) -> str:
        """The path of the first process's first profile."""
        return self._family or self.first_path

    def pause(self) -> None:
        """Ends the recording for now."""
        if self._path is None:
            return
        self._path = None
        try:
            finish()
        except Error:
            # A test has stopped it.
            pass
        self._recordings[-1].update(switches=self._switches, unfinished=sorted(self.alive))

    def resume(self) -> None:
        """Goes on in another profile, if the recording is interrupted."""
        if self._path is None and not self._has_finished:
            self.begin()

    def finish(self) -> None:
        """Ends the recording. What only the collector would free is freed before: it is no leak."""
        if self._has_finished:
            return
        self._has_finished = True
        if self._path is not None:
            gc.collect()
            self.pause()
        self._agent.label_process()

    def owner(self, name: str, scope: str | None) -> int:
        """The number of a test or fixture."""
        number = self._owners.setdefault((name, scope), len(self._owners))
        if number == len(self._labels):
            self._labels.append(name if scope is None else f"fixture {name} ({scope})")
        return number

    def at_work(self, name: str, scope: str | None) -> AtWork:
        """Notes who is at work while a block runs."""
        return AtWork(self, self.owner(name, scope))

    def push(self, owner: int) -> None:
        """This owner begins."""
        self._stack.append(owner)
        self._switch()

    def pop(self) -> None:
        """It ends, and the one before it goes on."""
        self._stack.pop()
        self._switch()

    def _switch(self) -> None:
        owner = self._stack[-1]
        if owner == _NOBODY:
            self._agent.label_process()
        else:
            self._agent.label_process(test=self._labels[owner])
        self._switches.append((time.monotonic_ns(), owner))

    def add_measured(self, name: str, figures: dict[str, Any]) -> None:
        """Adds the figures of a test that was recorded by itself."""
        self._measured.append({"owner": self.owner(name, None), **figures})

    def marks(self) -> dict[str, Any]:
        """What ran when, as ``nthbyte tests`` reads it."""
        owners = [{"name": name, "scope": scope} for name, scope in self._owners]
        return {
            "nthbyte_tests": 1,
            "owners": owners,
            "recordings": self._recordings,
            "measured": self._measured,
        }

    def family(self) -> tuple[str, dict[str, Any]]:
        """What a worker needs to know to belong to the same run: the first profile, and the configuration."""
        return self.family_path, {**self._config, "parent_pid": os.getpid()}


class AtWork:
    """Who is at work while a block runs."""

    def __init__(self, recorder: Recorder, owner: int):
        self._recorder = recorder
        self._owner = owner

    def __enter__(self) -> None:
        self._recorder.push(self._owner)

    def __exit__(self, *_: object) -> None:
        self._recorder.pop()


def joined(all_marks: list[dict[str, Any]]) -> dict[str, Any]:
    """Joins the marks of several processes: an owner of the same name is the same one."""
    owners: dict[tuple[str, str | None], int] = {}
    recordings, measured = [], []
    for marks in all_marks:
        numbers = {_NOBODY: _NOBODY}
        for number, owner in enumerate(marks["owners"]):
            numbers[number] = owners.setdefault((owner["name"], owner["scope"]), len(owners))
        for recording in marks["recordings"]:
            switches = [(when, numbers[owner]) for when, owner in recording.get("switches", ())]
            unfinished = [numbers[owner] for owner in recording.get("unfinished", ())]
            recordings.append({**recording, "switches": switches, "unfinished": unfinished})
        measured += [{**figures, "owner": numbers[figures["owner"]]} for figures in marks["measured"]]
    return {
        "nthbyte_tests": 1,
        "owners": [{"name": name, "scope": scope} for name, scope in owners],
        "recordings": recordings,
        "measured": measured,
    }


def show(size: float) -> str:
    """A size as pytest-memray writes it: ``24.0MiB``."""
    for unit in ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi"):
        if abs(size) < 1024:
            return f"{size:.1f}{unit}B"
        size /= 1024
    return f"{size:.1f}YiB"


# The figure that a limit is about.
_FIGURES = {"limit_memory": "peak", "limit_allocated": "allocated"}


def judged(limits: dict[str, list[tuple[str, float]]], rows: list[dict[str, Any]]) -> tuple[bool, list[str]]:
    """Whether a test surely exceeds its limit, and a line for each that does or may."""
    lines = []
    has_failed = False
    by_name = {row["name"]: row for row in rows if "scope" not in row}
    for name, of_test in limits.items():
        for marker, limit in of_test:
            figure = by_name.get(name, {}).get(_FIGURES[marker])
            if figure is None or figure["high"] < limit:
                continue
            is_sure = figure["low"] >= limit
            has_failed |= is_sure
            word = "exceeds" if is_sure else "may exceed"
            between = f"{show(figure['low'])} to {show(figure['high'])}"
            lines.append(f"nthbyte: {name} {word} its {marker} of {show(limit)}: {between}")
    return has_failed, lines


def leak_lines(leaks: list[dict[str, Any]], not_repeated: list[str], calls: int, most: int) -> list[str]:
    """What each call of a test leaves, in lines; the tests with most first."""
    by_test: dict[str, int] = {}
    for leak in leaks:
        by_test[leak["test"]] = by_test.get(leak["test"], 0) + leak["bytes"]
    ranked = sorted(by_test.items(), key=lambda item: -item[1])
    title = f"Left alive by each call of a test, of {calls}"
    lines = [title if ranked else f"{title}: nothing"]
    for name, size in ranked[: most or None]:
        lines.append(f"{show(size):>10}  {name}")
        of_test = sorted((one for one in leaks if one["test"] == name), key=lambda one: -one["bytes"])
        for leak in of_test[:3]:
            where = "".join(f"{file}:{line} {function}" for function, file, line in leak["stack"])
            amount = f"{show(leak['bytes'])} in {leak['blocks']} blocks"
            lines.append(f"{'':>12}{amount}  {where or 'outside of Python'}")
            if leak.get("held_by"):
                lines.append(f"{'':>14}{leak['held_by']}")
    if len(ranked) > most > 0:
        lines.append(f"… and {len(ranked) - most} more")
    if not_repeated:
        lines.append(f"Not known of tests that do not run twice: {', '.join(not_repeated[:3])}")
        if len(not_repeated) > 3:
            lines[-1] += f" and {len(not_repeated) - 3} more"
    return [*lines, ""]


def marks_path(profile: str) -> str:
    """The file that says what ran when, beside the run's first profile."""
    return os.path.splitext(profile)[0] + ".tests.json"


def _first(options: Any) -> Config:
    """The configuration of the process that the user started."""
    output = options.nthbyte_output or f"nthbyte-pytest.{os.getpid()}.nthb"
    try:
        return configure(output, {**_defaults(), "every": options.nthbyte_every or _PERIOD})
    except ValueError as error:
        raise ValueError(
            str(error).replace("--every", "--nthbyte-every").replace("-o", "--nthbyte-output")
        ) from None


def _defaults() -> dict[str, Any]:
    from nthbyte._options import OPTIONS

    return {option.name: option.default for option in OPTIONS if option.is_argument}


def _name(fixturedef: Any) -> str:
    """A fixture's name, with the file or class that it belongs to."""
    return f"{fixturedef.argname} of {fixturedef.baseid}" if fixturedef.baseid else str(fixturedef.argname)


def _shown(path: str) -> str:
    """A path as a user would type it."""
    import shlex

    try:
        short = os.path.relpath(path)
    except (OSError, ValueError):
        short = path
    return shlex.quote(path if short.startswith("..") else short)
