"""Signatures, help texts and documents agree with the table of options."""

from __future__ import annotations

import inspect
import json
import re
import typing
from pathlib import Path
from typing import Any

import pytest

import nthbyte
from harness import REPOSITORY, Interpreter, report
from nthbyte import _options, _session
from nthbyte._arguments import parse
from nthbyte._command_line import read, split
from nthbyte._config import Config
from nthbyte._options import DESCRIPTION, OPTIONS

AMOUNTS = json.loads((REPOSITORY / "tests/amounts.json").read_text())
ARGUMENTS = [option for option in OPTIONS if option.is_argument]


@pytest.mark.parametrize("function", [nthbyte.start, nthbyte.Profiler])
def test_signatures(function: typing.Callable[..., object]) -> None:
    parameters = list(inspect.signature(function).parameters.values())
    assert parameters[0].name == "output"
    keywords = [(one.name, one.default) for one in parameters[1:]]
    assert keywords == [(option.name, option.default) for option in ARGUMENTS]
    assert all(one.kind is one.KEYWORD_ONLY for one in parameters[1:])


def test_documentation_of_start() -> None:
    text = inspect.getdoc(nthbyte.start) or ""
    for option in ARGUMENTS:
        [line] = re.findall(rf"^{option.name}: .*(?:\n    .*)*", text, re.M)
        only = re.search(r"(\w+) only\.$", line)
        assert (only[1] if only else None) == (option.where() if len(option.interpreters) == 1 else None), (
            line
        )
        assert ("not available yet" in line) == (not option.interpreters), line


def test_help(interpreter: Interpreter, tmp_path: typing.Any) -> None:
    text = interpreter.nthbyte("run", "--help", folder=tmp_path).ok().out
    name = "pypy" if interpreter.is_pypy else "cpython"
    for option in OPTIONS:
        offered = re.search(rf"(?<![\w-]){option.flag}(?![\w-])", text)
        assert bool(offered) == (name in option.interpreters), option.flag
    plain = " ".join(text.split())
    assert f"{DESCRIPTION}." in plain
    for option in OPTIONS:
        if name in option.interpreters:
            # Lines may be wrapped anywhere, also after a hyphen.
            assert option.help.replace(" ", "") in plain.replace(" ", ""), option.flag


def test_help_of_the_other_command(tmp_path: typing.Any) -> None:
    lines = report("--help", folder=tmp_path).ok().out.splitlines()
    # A description that goes on in the next line is further to the right.
    [line] = [line for line in lines if re.match(r" {2,4}run ", line)]
    assert line.split(maxsplit=1)[1] == DESCRIPTION


def test_the_page_of_options() -> None:
    text = (REPOSITORY / "docs" / "run.md").read_text()
    rows = re.findall(r"^\| (`-.*)\|$", text, re.M)
    expected = []
    for option in OPTIONS:
        if option.interpreters:
            value = f" {option.shown}" if option.placeholder else ""
            # A bar between two values would end the cell.
            flags = ", ".join(f"`{flag}{value}`" for flag in reversed(option.flags)).replace("|", "\\|")
            expected.append(f"{flags} | {option.help} | {option.where()} ")
    assert rows == expected


@pytest.mark.parametrize(
    "path", ["README.md", *sorted(f"docs/{p.name}" for p in (REPOSITORY / "docs").glob("*.md"))]
)
def test_no_other_option_is_documented(path: str) -> None:
    text = (REPOSITORY / path).read_text()
    there = {flag for option in OPTIONS if option.interpreters for flag in option.flags}
    for call in re.findall(r"nthbyte run ([^\n`]*)", text):
        words, _ = split(call.split())
        assert {word for word in words if word.startswith("-")} <= {*there, "--help"}, call
    for option in OPTIONS:
        if not option.interpreters:
            assert option.flag not in text


def test_the_agent_knows_each_field_of_a_session() -> None:
    """The agent refuses unknown fields (``deny_unknown_fields``), so this shows that it knows these."""
    text = (REPOSITORY / "crates" / "session" / "src" / "config.rs").read_text()
    assert "deny_unknown_fields" in text
    body = re.search(r"^pub struct Config \{\n(.*?)^\}", text, re.M | re.S)
    assert body
    fields = set(re.findall(r"^    pub (\w+):", body[1], re.M))
    # Fields that only the PyPy agent has.
    assert fields - {"pypy"} == set(Config.__annotations__)
    given = {option.name: option.default for option in ARGUMENTS}
    assert set(_session.configure("x.nthb", given)) == set(Config.__annotations__)


@pytest.mark.parametrize(
    ("given", "period", "auto", "distances"),
    [
        ({}, 16384, True, "exponential"),
        ({"seed": 0}, 524288, False, "exponential"),
        ({"fixed": True}, 524288, False, "fixed"),
        ({"every": "64KiB", "seed": 7}, 65536, False, "exponential"),
        ({"every": "auto"}, 16384, True, "exponential"),
        ({"every": "64KiB"}, 65536, False, "exponential"),
        ({"every": 1}, 1, False, "every"),
    ],
    ids=str,
)
def test_the_period_of_a_session(
    given: dict[str, object], period: int, auto: bool, distances: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # There, all options are.
    monkeypatch.setattr(_options.sys.implementation, "name", "pypy")
    monkeypatch.setattr(_session, "interpreter", lambda: "PyPy")
    defaults = {option.name: option.default for option in ARGUMENTS}
    config = _session.configure("x.nthb", {**defaults, **given})
    assert (config["period"], config["auto"], config["distances"]) == (period, auto, distances)


@pytest.mark.parametrize("given", [{"seed": 0}, {"seed": 7}, {"fixed": True}], ids=str)
def test_what_is_repeatable_does_not_follow_the_program(
    given: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_options.sys.implementation, "name", "pypy")
    defaults = {option.name: option.default for option in ARGUMENTS}
    with pytest.raises(ValueError, match=r"--every auto and --(seed|fixed) exclude each other"):
        _session.configure("x.nthb", {**defaults, "every": "auto", **given})


def test_options_of_other_interpreters_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, object] = {option.name: option.default for option in ARGUMENTS}
    other = {
        "fixed": True,
        "native_frames": True,
        "huge_pages": "off",
        "holders": True,
        "names": False,
        "snapshot": 60,
    }
    for name in ("cpython", "pypy"):
        monkeypatch.setattr(_options.sys.implementation, "name", name)
        for option in ARGUMENTS:
            if name not in option.interpreters:
                with pytest.raises(ValueError, match=f"^{option.flag} is not available [^\n]*$"):
                    _options.check({**given, option.name: other[option.name]})


@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": -1},
        {"seed": 1.5},
        {"seed": True},
        {"seed": "7"},
        {"every": 1.5},
        {"native": "no"},
        {"native": 1},
        {"native_frames": 1},
        {"snapshot": 0.05},
        {"snapshot": "SOON"},
        {"snapshot": "KILL"},
        {"snapshot": True},
        {"keep": "3s"},
        {"keep": "1000"},
        {"keep": "24h,1h"},
        {"keep": "soon"},
        {"keep": 24},
    ],
)
def test_wrong_values(wrong: dict[str, object]) -> None:
    given: dict[str, object] = {option.name: option.default for option in ARGUMENTS}
    with pytest.raises(ValueError, match=r"^[^\n]*$"):
        _options.check({**given, **wrong})


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["--cpu", "app.py"], 1000),
        (["--cpu", "250", "app.py"], 250),
        (["--cpu=250", "app.py"], 250),
        (["--cpu", "-m", "app"], 1000),
        (["--cpu", "-q", "app.py"], 1000),
        (["--cpu", "--", "250"], 1000),
        (["app.py", "--cpu"], None),
    ],
    ids=str,
)
def test_an_option_whose_value_may_be_missing(words: list[str], value: int | None) -> None:
    options, program = read(words)
    assert options["cpu"] == value
    assert program.target in ("app.py", "app", "250")
    # `argparse` reads the same, where there is a mistake elsewhere.
    assert parse(split(words)[0])["cpu"] == value


@pytest.mark.parametrize(("text", "nanos"), AMOUNTS["times"])
def test_times_are_read_as_everywhere(text: str, nanos: int | None) -> None:
    if nanos is None:
        with pytest.raises(ValueError, match=r"is not a time: write|more than a year"):
            _options.parse_seconds(text)
    else:
        assert _options.parse_seconds(text) == pytest.approx(nanos / 1e9)


def test_true_means_the_usual_number() -> None:
    given: dict[str, object] = {option.name: option.default for option in ARGUMENTS}
    assert _options.check({**given, "cpu": True})["cpu"] == 1000
    assert _options.check({**given, "cpu": False})["cpu"] is None
    with pytest.raises(ValueError, match="--cpu is a whole number"):
        _options.check({**given, "cpu": 0})


@pytest.mark.parametrize(
    "given",
    [
        {"cpu": 0},
        {"native": 3},
        {"force": "no"},
        {"huge_pages": "large"},
        {"native": False, "native_frames": True},
        {"every": "auto", "seed": 3},
        {"snapshot": "SOON"},
        {"snapshot": 60, "holders": False},
        {"keep": "1s"},
    ],
    ids=str,
)
def test_errors_of_a_call_name_its_arguments(given: dict[str, Any], tmp_path: Path) -> None:
    for call in (nthbyte.start, nthbyte.Profiler):
        with pytest.raises(ValueError, match=next(iter(given))) as caught:
            call(tmp_path / "x.nthb", **given)
        message = str(caught.value)
        assert "--" not in message
        assert all(name in message for name in given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("24h", {"nanos": 86_400 * 10**9}),
        ("500MB", {"bytes": 500 << 20}),
        ("90min, 2GiB", {"nanos": 5_400 * 10**9, "bytes": 2 << 30}),
        ("2097152", {"bytes": 2 << 20}),
        # A minute, and a mebibyte.
        ("1m,1M", {"nanos": 60 * 10**9, "bytes": 1 << 20}),
    ],
)
def test_what_is_kept_is_a_time_or_a_size(text: str, kept: dict[str, int]) -> None:
    given: dict[str, object] = {option.name: option.default for option in ARGUMENTS}
    assert _options.check({**given, "keep": text})["keep"] == kept
