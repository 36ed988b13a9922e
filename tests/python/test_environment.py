"""``NTHBYTE=on`` and the variables of options: a recording that the command line does not name."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import harness
from nthbyte._command_line import read
from nthbyte._environment import options_of, variable_of
from nthbyte._options import OPTIONS, parse_tags

# In place of an installation: the folder's `.pth` file is read at the start of each interpreter.
CUSTOMIZE = f"import site; site.addsitedir({str(harness.SITE)!r})\n"

PROGRAM = """
import sys
kept = [bytearray(1000) for _ in range(4000)]
print("done", sys.argv[1:], "NTHBYTE_JOIN" in __import__("os").environ)
"""

# Starts another one in each of two ways.
PARENT = """
import multiprocessing, subprocess, sys

def work():
    return sum(len(bytearray(1000)) for _ in range(4000))

if __name__ == "__main__":
    subprocess.run([sys.executable, "app.py"], check=True)
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start(), process.join()
    kept = [bytearray(1000) for _ in range(4000)]
"""

ON = {"NTHBYTE": "on", "NTHBYTE_EVERY": "8KiB"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sitecustomize.py").write_text(CUSTOMIZE)
    (tmp_path / "app.py").write_text(PROGRAM)
    (tmp_path / "parent.py").write_text(PARENT)
    return tmp_path


def python(
    interpreter: harness.Interpreter, folder: Path, variables: dict[str, str], *words: str
) -> harness.Done:
    return interpreter.python(
        *words, folder=folder, environment={"PYTHONPATH": f"{folder}{os.pathsep}{harness.SITE}"} | variables
    )


def profiles(folder: Path) -> list[Path]:
    return sorted(folder.glob("**/*.nthb"))


def test_a_program_is_recorded_with_its_options_and_tags(
    interpreter: harness.Interpreter, folder: Path
) -> None:
    variables = ON | {"NTHBYTE_TAGS": "service:web, env=prod", "NTHBYTE_SEED": "3"}
    done = python(interpreter, folder, variables, "app.py", "one", "two").ok()
    assert done.out == "done ['one', 'two'] False\n"
    [profile] = profiles(folder)
    assert profile.name.startswith("nthbyte-app.") and profile.name in done.err
    assert done.err.count("\n") == 1
    found = harness.summary(profile)
    assert found["command"] == ["app.py", "one", "two"] and found["complete"]
    assert found["period"] == 8 << 10
    assert found["samples"] > 100
    assert found["tags"] == ["env=prod", "service=web"]
    assert found["processes"][0]["tags"] == {"env": "prod", "service": "web"}
    assert found["processes"][0]["host"] == os.uname().nodename
    # They are labels of each sample.
    [row] = harness.summary(profile, "--by", "label:service")["rows"]
    assert row["name"] == "web"
    assert harness.summary(profile, "--label", "env=prod")["samples"] == found["samples"]
    text = harness.report("explain", profile, folder=folder).ok().out
    assert "env=prod service=web" in text.splitlines()[0]
    # A label that all samples have is nothing that explain could say more of.
    answers = json.loads(harness.report("explain", profile, "--json", folder=folder).ok().out)["answers"]
    assert "labels" not in [answer["topic"] for answer in answers]


@pytest.mark.launcher
def test_names_of_profiles(interpreter: harness.Interpreter, folder: Path) -> None:
    (folder / "profiles").mkdir()
    quiet = ON | {"NTHBYTE_QUIET": "1"}
    in_folder = quiet | {"NTHBYTE_OUTPUT": "profiles"}
    for variables, words, name, command in (
        (quiet | {"NTHBYTE_OUTPUT": "mine.nthb"}, ["app.py"], "mine.nthb", ["app.py"]),
        (in_folder, ["-u", "-m", "app", "1"], "profiles/nthbyte-app.*.nthb", ["-m", "app", "1"]),
        (in_folder, ["-um", "app", "1"], "profiles/nthbyte-app.*.nthb", ["-m", "app", "1"]),
        (in_folder, ["-c", "[]", "1"], "profiles/nthbyte-code.*.nthb", ["-c", "[]", "1"]),
        (in_folder, ["./app.py"], "profiles/nthbyte-app.*.nthb", ["./app.py"]),
    ):
        done = python(interpreter, folder, variables, *words).ok()
        assert done.err == ""
        [profile] = profiles(folder)
        assert profile.match(name), (words, profile)
        assert harness.summary(profile)["command"] == command
        profile.unlink()


@pytest.mark.launcher
@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"NTHBYTE": "maybe"}, "NTHBYTE=maybe means nothing: write on or ready"),
        ({"NTHBYTE": "on", "NTHBYTE_EVERY": "12 apples"}, "NTHBYTE_EVERY: "),
        ({"NTHBYTE": "on", "NTHBYTE_SEED": "x"}, "NTHBYTE_SEED: 'x' is not a whole number"),
        ({"NTHBYTE": "on", "NTHBYTE_QUIET": "x"}, "NTHBYTE_QUIET: 'x' is neither on nor off"),
        (
            {"NTHBYTE": "on", "NTHBYTE_TAGS": "web"},
            "NTHBYTE_TAGS: 'web' is no tag: write service:web,env:prod",
        ),
        ({"NTHBYTE": "on", "NTHBYTE_OUTPUT": "nowhere/x.nthb"}, "nowhere"),
        ({"NTHBYTE": "on", "NTHBYTE_SEED": "1", "NTHBYTE_EVERY": "auto"}, "exclude each other"),
    ],
    ids=str,
)
def test_a_wrong_value_is_one_line_and_the_program_runs(
    interpreter: harness.Interpreter, folder: Path, variables: dict[str, str], said: str
) -> None:
    done = python(interpreter, folder, variables, "app.py").ok()
    assert done.out == "done [] False\n"
    assert said in done.err and "is not recorded: " in done.err
    assert done.err.startswith("nthbyte: process ") and done.err.count("\n") == 1
    assert not profiles(folder)


@pytest.mark.launcher
def test_off_is_silent(interpreter: harness.Interpreter, folder: Path) -> None:
    for value in ("off", "0", ""):
        done = python(interpreter, folder, ON | {"NTHBYTE": value}, "app.py").ok()
        assert done.err == "" and not profiles(folder)


def test_children_are_one_family(interpreter: harness.Interpreter, folder: Path) -> None:
    """Both variables are there for a child, which has one profile nevertheless."""
    done = python(interpreter, folder, ON, "parent.py").ok()
    assert done.err.count("nthbyte: ") == 1, done.err
    assert "2 child processes" in done.err
    first = min(profiles(folder), key=lambda path: len(path.name))
    found = harness.summary(first, "--all")
    assert len(found["processes"]) == len(profiles(folder)) == 3


@pytest.mark.launcher
def test_one_process_only(interpreter: harness.Interpreter, folder: Path) -> None:
    python(interpreter, folder, ON | {"NTHBYTE_CHILDREN": "off"}, "parent.py").ok()
    [profile] = profiles(folder)
    assert harness.summary(profile)["command"] == ["parent.py"]


@pytest.mark.launcher
def test_nthbyte_itself_is_not_recorded(interpreter: harness.Interpreter, folder: Path) -> None:
    done = python(interpreter, folder, ON, "-m", "nthbyte", "run", "-o", "x.nthb", "app.py").ok()
    assert [path.name for path in profiles(folder)] == ["x.nthb"]
    assert done.err.count("\n") == 1


@pytest.mark.launcher
def test_a_part_of_a_run(interpreter: harness.Interpreter, folder: Path) -> None:
    done = python(interpreter, folder, ON | {"NTHBYTE_START_AFTER": "1h"}, "app.py").ok()
    assert not profiles(folder)
    assert "the program ended before a recording began" in done.err


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_each_option_has_a_variable(option: object) -> None:
    """A variable means what the option means on the command line."""
    assert isinstance(option, type(OPTIONS[0]))
    given = {
        "cpu": "250",
        "every": "64KiB",
        "for": "30s",
        "huge_pages": "off",
        "keep": "24h",
        "output": "x.nthb",
        "seed": "3",
        "signal": "USR1",
        "snapshot": "60s",
        "start_after": "1min",
        "tags": "a:b",
    }
    name = variable_of(option)
    if option.placeholder:
        options, _ = read([f"{option.flag}={given[option.name]}", "app.py"])
        assert options_of({name: given[option.name]}) == options
        if option.alone is not None:
            assert options_of({name: "on"})[option.name] == option.alone
    else:
        for flag in option.flags:
            if not flag.startswith("--"):
                continue
            options, _ = read([flag, "app.py"])
            value = "yes" if options[option.name] else "no"
            assert options_of({name: value}) == options


def test_tags() -> None:
    assert parse_tags("service:web,env=prod, image:web:1.2 ,,") == {
        "service": "web",
        "env": "prod",
        "image": "web:1.2",
    }
    for wrong in ("web", ":web", "service:", ",".join(f"k{n}:v" for n in range(65)), f"k:{'v' * 257}"):
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            parse_tags(wrong)
