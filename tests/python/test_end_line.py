"""The line at the end of a run."""

from __future__ import annotations

import _signal
import json
import shlex
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from nthbyte import _end_line, _ready
from nthbyte._agent import Result
from nthbyte._end_line import EndLine, quoted, say, shortest

# The texts that the agent of programs without Python gives, too.
TEXTS = json.loads((Path(__file__).parents[1] / "end_lines.json").read_text())


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


@pytest.mark.parametrize(("path", "folder", "shown"), TEXTS["shown"])
def test_the_shorter_path_is_shown(path: str, folder: str, shown: str) -> None:
    assert shortest(path, folder) == shown


@pytest.mark.parametrize(("path", "text"), TEXTS["quoted"])
def test_a_path_is_quoted(path: str, text: str) -> None:
    assert quoted(path) == text
    assert shlex.split(text) == [f"./{path}" if path.startswith("-") else path]


@pytest.mark.parametrize("of", TEXTS["lines"], ids=lambda of: of["said"])
def test_what_was_recorded_is_said(
    of: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not what the tests before this one have started.
    monkeypatch.setattr(_end_line, "left_out", lambda recorded: [])
    monkeypatch.setattr(_end_line, "_cpu_seconds_of_children", lambda: 0.0)
    monkeypatch.setattr(_end_line._session, "native_problem", None)
    path = tmp_path / "a.nthb"
    line = EndLine(str(path), str(tmp_path))
    # The times of files are those of the last tick.
    line._started -= 1
    for name in ["a.nthb", *(f"a.{number}.nthb" for number in range(of.get("children", 0)))]:
        (tmp_path / name).touch()
    stalled = of.get("stalled", False)
    notes = tuple(of.get("notes", ()))
    result = Result(str(path), of["samples"], of.get("time", 0), of.get("lost", 0), None, notes, stalled)
    said = of["said"] if stalled else f"{of['said']}; see it with: nthbyte explain a.nthb"
    assert line.text(result) == said


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
