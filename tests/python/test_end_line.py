"""The line at the end of a run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from nthbyte._agent import Result
from nthbyte._end_line import EndLine


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
