"""Wrong usage gives one line on stderr and an exit status, never a traceback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness import COMMAND, Interpreter, report, run, summary

# Wrong arguments of `run`, and a part of the message.
WRONG_RUNS: dict[str, tuple[list[str], str]] = {
    "nothing to run": ([], "nothing to run"),
    "only options": (["-q", "--every", "1MiB"], "nothing to run"),
    "no module": (["-m"], "-m needs the module"),
    "no code": (["-c"], "-c needs the code"),
    "no such option": (["--evry", "1K", "x.py"], "--evry"),
    "option without value": (["--every"], "--every"),
    "nonsense as period": (["--every", "much", "x.py"], "'much' is not a size"),
    "period too small": (["--every", "63", "x.py"], "out of range"),
    "period too large": (["--every", "2TiB", "x.py"], "out of range"),
    "nonsense as seed": (["--seed", "x", "x.py"], "--seed"),
    "negative seed": (["--seed", "-1", "x.py"], "--seed is"),
    "nonsense as huge pages": (["--huge-pages", "big", "x.py"], "--huge-pages"),
    "too many time samples": (["--cpu", "1000000", "x.py"], "--cpu"),
    "a console script that is missing": (["missing"], "no console script"),
    "a script in another language": (["ldd"], "is a script for"),
    "an interpreter": (["python3", "x.py"], "leave out 'python3'"),
    "a profile on standard output": (["-o", "-", "-c", "pass"], "not to standard output"),
    "nonsense as time": (["--for", "soon", "x.py"], "'soon' is not a time"),
    "nonsense as signal": (["--signal", "NONE", "x.py"], "no signal 'NONE'"),
    "a signal that nobody handles": (["--signal", "KILL", "x.py"], "'KILL'"),
    "nonsense as time samples": (["--cpu=much", "x.py"], "--cpu"),
    "missing script": (["missing.py"], "can't open 'missing.py'"),
    "a folder without main": (["."], "__main__"),
}


@pytest.mark.parametrize("wrong", WRONG_RUNS)
def test_wrong_arguments_of_run_give_one_line(wrong: str, interpreter: Interpreter, tmp_path: Path) -> None:
    words, said = WRONG_RUNS[wrong]
    done = interpreter.nthbyte("run", *words, folder=tmp_path)
    lines = [line for line in done.err.splitlines() if "; see it with: " not in line]
    assert len(lines) == 1, done.err
    assert said in lines[0]
    assert done.out == ""
    assert done.status == (1 if wrong == "a folder without main" else 2)


def test_options_of_other_interpreters_are_refused(interpreter: Interpreter, tmp_path: Path) -> None:
    only_cpython = (["--huge-pages", "off"],)
    for option in only_cpython if interpreter.is_pypy else (["--fixed"],):
        done = interpreter.nthbyte("run", *option, "-c", "pass", folder=tmp_path)
        [line] = done.err.splitlines()
        assert f"{option[0]} is not available" in line
        assert done.status == 2


def test_a_file_that_is_not_a_profile_is_kept(interpreter: Interpreter, tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("the only copy")
    done = interpreter.nthbyte("run", "-f", "-o", thesis, "-c", "print(1)", folder=tmp_path)
    [line] = done.err.splitlines()
    assert "is not a profile" in line
    assert (done.status, done.out, thesis.read_text()) == (1, "", "the only copy")
    done = interpreter.nthbyte("run", "-q", "-o", thesis, "-c", "print(1)", folder=tmp_path).ok()
    # Nothing replaces it.
    assert "nthbyte: thesis.txt exists: the profile is thesis-2.txt\n" in done.err
    assert (done.out, thesis.read_text()) == ("1\n", "the only copy")


def test_a_profile_is_kept_unless_it_is_to_be_replaced(interpreter: Interpreter, tmp_path: Path) -> None:
    def run(number: int, *options: str) -> str:
        words = ["-q", "-o", "out.nthb", *options, "-c", "pass", str(number)]
        return interpreter.nthbyte("run", *words, folder=tmp_path).ok().err

    def numbers() -> dict[str, str]:
        return {path.name: summary(path)["command"][-1] for path in tmp_path.glob("*.nthb")}

    assert run(1) == ""
    assert run(2) == "nthbyte: out.nthb exists: the profile is out-2.nthb (-f replaces it)\n"
    run(3)
    assert run(4, "-f") == ""
    assert numbers() == {"out.nthb": "4", "out-2.nthb": "2", "out-3.nthb": "3"}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("missing/out.nthb", "does not exist"),
        (".", "is a folder"),
        ("/proc/out.nthb", "cannot be made"),
    ],
)
def test_a_path_that_cannot_be_written(
    path: str, said: str, interpreter: Interpreter, tmp_path: Path
) -> None:
    done = interpreter.nthbyte("run", "-o", path, "-c", "print(1)", folder=tmp_path)
    [line] = done.err.splitlines()
    assert line.startswith("nthbyte: ")
    assert said in line and line.count("cannot write") <= 1
    assert tmp_path.name in line or "/proc/out.nthb" in line
    assert (done.status, done.out) == (1, "")


def test_a_name_that_is_not_utf_8(interpreter: Interpreter, tmp_path: Path) -> None:
    """nthbyte takes its own default name, whatever the script's; for another, it says what to do."""
    script = os.fsdecode(b"caf\xe9.py")
    (tmp_path / script).write_text("print(1)")
    done = interpreter.nthbyte("run", "-q", script, folder=tmp_path).ok()
    [profile] = tmp_path.glob("*.nthb")
    assert (done.out, done.err) == ("1\n", "") and profile.name.startswith("nthbyte-caf_.")
    assert summary(profile)["complete"]
    done = interpreter.nthbyte("run", "-o", os.fsdecode(b"\xff.nthb"), script, folder=tmp_path)
    path = tmp_path / "\\udcff.nthb"
    assert done.err == f"nthbyte: the profile's path is not UTF-8: '{path}'; choose one in UTF-8 with -o\n"
    assert (done.status, done.out) == (2, "")


def test_a_name_in_a_locale_that_is_not_utf_8(interpreter: Interpreter, tmp_path: Path) -> None:
    locale = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    words = ("run", "-o", "übung.nthb", "-c", "pass")
    [line] = interpreter.nthbyte(*words, folder=tmp_path, environment=locale).ok().err.splitlines()
    assert "see it with" in line
    [profile] = tmp_path.iterdir()
    assert profile.name == "übung.nthb" and summary(profile)["complete"]


def test_a_device_is_nothing_to_look_at(interpreter: Interpreter, tmp_path: Path) -> None:
    done = interpreter.nthbyte("run", "-o", "/dev/null", "-c", "print(1)", folder=tmp_path).ok()
    assert "sample" in done.err and "explain" not in done.err


def test_a_folder_is_not_the_program_of_its_name(interpreter: Interpreter, tmp_path: Path) -> None:
    # Beside the interpreters of the system is a program `dir`, too.
    (tmp_path / "dir").mkdir()
    done = interpreter.nthbyte("run", "-q", "dir", folder=tmp_path)
    assert done.status == 1 and "'__main__'" in done.err, done.out


GONE = """
import os, sys
os.mkdir("gone")
os.chdir("gone")
os.rmdir("../gone")
"""
IN_NO_FOLDER = {
    "a program": "os.execv(sys.executable, [sys.executable, '-m', 'nthbyte', 'run', *sys.argv[1:], '-c', 'print(1)'])",
    "a session": "import nthbyte\ntry:\n    nthbyte.start('out.nthb')\nexcept nthbyte.Error as error:\n"
    "    sys.exit(f'nthbyte: {error}')",
}


@pytest.mark.parametrize("what", IN_NO_FOLDER)
def test_a_working_folder_that_is_gone_gives_one_line(
    what: str, cpython: Interpreter, tmp_path: Path
) -> None:
    # PyPy itself does not start with -m there.
    done = cpython.python("-c", GONE + IN_NO_FOLDER[what], folder=tmp_path)
    [line] = done.err.splitlines()
    assert line.startswith("nthbyte: there is no working folder (No such file or directory): ")
    assert (done.status, done.out) == (1, "")


def test_help(interpreter: Interpreter, tmp_path: Path) -> None:
    done = interpreter.nthbyte("run", "--help", folder=tmp_path).ok()
    assert "--every" in done.out
    assert "run" in interpreter.nthbyte("--help", folder=tmp_path).ok().out
    assert "nthbyte 0." in interpreter.nthbyte("--version", folder=tmp_path).ok().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "a command is missing"),
        (["summery"], "summery"),
        (["summary"], "<PROFILE>"),
        (["export", "x.nthb"], "--to"),
        (["export", "x.nthb", "--to", "word"], "word"),
        (["summary", "x.nthb", "--top", "few"], "few"),
        (["app.py", "--every", "1"], "try: nthbyte run app.py"),
        (["my app.nthb"], "try: nthbyte explain 'my app.nthb'"),
        (["stats", "x.nthb"], "try: nthbyte summary PROFILE"),
        (["-m", "app"], "try: nthbyte run -m"),
    ],
)
def test_wrong_commands_give_one_line(words: list[str], said: str, tmp_path: Path) -> None:
    done = report(*words, folder=tmp_path)
    [line] = done.err.splitlines()
    assert line.startswith("nthbyte: ")
    assert said in line
    assert done.status == 2


def test_run_needs_an_interpreter(tmp_path: Path) -> None:
    done = run([str(COMMAND), "run", "app.py", "--help"], tmp_path)
    [line] = done.err.splitlines()
    assert "python3 -m nthbyte run app.py --help" in line
    assert done.status == 1
