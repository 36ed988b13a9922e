"""The line at the end of a run."""

from __future__ import annotations

import _signal
import re
import shlex
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from nthbyte import _ready
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


@pytest.mark.parametrize(("samples", "said"), [(0, "0 samples"), (1, "1 sample"), (1234, "1,234 samples")])
def test_one_sample_is_no_plural(samples: int, said: str, tmp_path: Path) -> None:
    # What the tests before this one have started may be named too.
    assert re.match(f"{said}[,;] ", line(tmp_path / "app.nthb", samples))


@pytest.mark.parametrize(("samples", "said"), [(1, "1 time sample"), (1234, "1,234 time samples")])
def test_time_samples_are_counted_too(samples: int, said: str, tmp_path: Path) -> None:
    assert re.match(f"0 samples, {said}[,;] ", line(tmp_path / "app.nthb", 0, samples))


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
