"""The line at the end of a run."""

from __future__ import annotations

import _signal
import shlex
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from nthbyte import _end_line, _ready
from nthbyte._agent import Result
from nthbyte._end_line import EndLine, say


def line(path: Path, samples: int, time_samples: int = 0) -> str:
    path.touch()
    return EndLine(str(path), str(path.parent)).text(Result(str(path), samples, time_samples, 0, None, ()))


@pytest.mark.parametrize("name", ["app.nthb", "my app.nthb", "-app.nthb", "it's.nthb", "$(app).nthb", "-"])
def test_the_command_can_be_copied(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, _, command = line(tmp_path / name, 12_345).partition("see it with: ")
    [nthbyte, explain, path] = shlex.split(command)
    assert (nthbyte, explain) == ("nthbyte", "explain")
    assert not path.startswith("-")
    assert (tmp_path / path).samefile(tmp_path / name)


def test_what_is_not_recorded_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(_end_line, "left_out", lambda recorded: asked.append(recorded) or ["pypy3"])
    monkeypatch.setattr(_end_line, "_cpu_seconds_of_children", lambda: 0.25)
    monkeypatch.setattr(_end_line._session, "native_problem", "no libc")
    line = EndLine(str(tmp_path / "a.nthb"), str(tmp_path))
    # The times of files are the last tick's.
    line._started -= 10**9
    result = Result(line.path, 2, 0, 1, None, ("The disk is full.",))
    rest = "1 event lost, native memory was not recorded: no libc, The disk is full"
    used = "processes that it started used 0.2 s of CPU time and are not in the profile"
    assert line.text(result) == f"2 samples, not recorded: pypy3, {used}, {rest}"
    for name in ("a.nthb", "a.12.nthb", "a.12-2.nthb", "a.7.nthb"):
        (tmp_path / name).touch()
    said = f"2 samples, 2 child processes, not recorded: pypy3, {rest}"
    assert line.text(result) == f"{said}; see it with: nthbyte explain a.nthb"
    result.is_stalled = True
    assert line.text(result) == f"2 samples, not recorded: pypy3, {used}, {rest}"
    assert asked == [set(), {"12", "7"}, set()]


def test_texts_that_are_not_utf_8_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not what the tests before this one have started.
    monkeypatch.setattr(_end_line, "left_out", lambda recorded: [])
    monkeypatch.setattr(_end_line, "_cpu_seconds_of_children", lambda: 0.0)
    monkeypatch.setattr(_end_line._session, "native_problem", None)
    line = EndLine(str(tmp_path / "a.nthb"), f"{tmp_path}\udcff")
    result = Result(line.path, 2, 0, 0, None, ("a\udcff b", '\u00e4"\\'))
    assert line.text(result) == '2 samples, a? b, \u00e4"\\'


@pytest.mark.parametrize("call", [lambda: say(""), lambda: _ready._on_signal(0, None)], ids=["say", "ready"])
def test_a_handler_that_raises_while_signals_are_blocked_leaves_none_blocked(
    call: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    change = _signal.pthread_sigmask

    def raising(how: int, signals: Collection[int]) -> object:
        """What the function does if a handler raises that it runs when it has changed the mask."""
        before = change(how, signals)
        if how == _signal.SIG_BLOCK and signals:
            raise LookupError
        return before

    monkeypatch.setattr("_signal.pthread_sigmask", raising)
    before = change(_signal.SIG_BLOCK, ())
    with pytest.raises(LookupError):
        call()
    assert change(_signal.SIG_BLOCK, ()) == before
