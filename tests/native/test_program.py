"""``nthbyte run -- ./program``: programs without Python."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import SITE, Done, Interpreter, is_near, report, rows_so_far, run, summary

from .conftest import PROGRAMS

INTERPRETER = Interpreter(sys.executable)
DOMAIN = ("--domain", "native")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns a function that makes a program or a library (``.so``) from the source of this name."""
    folder = tmp_path_factory.mktemp("built")

    def build(name: str) -> Path:
        stem, _, suffix = name.partition(".")
        made = folder / stem if suffix != "so" else folder / name
        [source] = [path for path in PROGRAMS.glob(f"{stem}.*") if path.suffix in (".c", ".cpp", ".rs")]
        compiler = {".c": "cc", ".cpp": "c++", ".rs": "rustc"}[source.suffix]
        if shutil.which(compiler) is None:
            pytest.skip(f"there is no {compiler}")
        if compiler == "rustc":
            words = [compiler, "--edition=2024", "-O", "-g", "-C", "link-arg=-Wl,--build-id"]
        else:
            words = [
                compiler,
                "-O1",
                "-g",
                "-Wall",
                "-Werror",
                "-Wno-unused-result",
                "-Wl,--build-id",
                "-pthread",
            ]
            words += ["-shared", "-fPIC"] if suffix == "so" else []
        if not made.exists():
            subprocess.run(
                [*words, "-o", made, source, *([] if compiler == "rustc" else ["-ldl"])], check=True
            )
        return made

    return build


def _nthbyte(*words: str | Path, folder: Path, **options: Any) -> Done:
    """Runs ``nthbyte run -o out.nthb WORDS``."""
    return INTERPRETER.nthbyte("run", "-f", "-o", "out.nthb", *words, folder=folder, **options)


def _rows(profile: Path, *options: str) -> dict[str, Any]:
    """The rows of a summary by function."""
    return _by_name(summary(profile, *DOMAIN, "--top", "1000", *options))


def _by_name(found: dict[str, Any]) -> dict[str, Any]:
    return {row["name"]: row for row in found["rows"]}


def _said(out: str) -> dict[str, list[int]]:
    lines = [line.split() for line in out.splitlines()]
    return {what: [int(number) for number in numbers] for what, *numbers in lines}


def _check_exact(found: dict[str, Any], name: str, calls: int, size: int, left: int) -> None:
    row = _by_name(found)[name]
    # A thread waits for another one's sample for a bounded time; on a busy machine samples are lost, and counted.
    if lost := found["lost"]:
        assert calls - lost <= row["allocations"]["estimate"] <= calls
        return
    assert (row["total_bytes"]["estimate"], row["self_bytes"]["estimate"]) == (size, size)
    assert (row["allocations"]["estimate"], row["alive"]["estimate"]) == (calls, left)


def test_every_request_is_recorded(built: Callable[[str], Path], tmp_path: Path) -> None:
    """Four threads, a forked child that calls ``_exit``, and a library that is loaded later."""
    program = [str(built("exact")), "4", "500", str(built("plug.so"))]
    plain = run(program, tmp_path)
    done = _nthbyte("--every", "1", "--", *program, folder=tmp_path)
    assert (done.status, done.out) == (plain.status, plain.out)
    assert done.status == 42
    assert "1 child process" in done.err
    said = _said(done.out)
    whole = summary(tmp_path / "out.nthb", *DOMAIN, "--top", "1000")
    _check_exact(whole, "work", *said["all"])
    _check_exact(whole, "plug", *said["plug"])
    [child] = [path for path in tmp_path.glob("out.*.nthb")]
    _check_exact(summary(child, *DOMAIN, "--top", "1000"), "work", *said["child"])
    assert whole["command"] == program
    assert whole["interpreter"].startswith("glibc ")
    assert whole["complete"]
    # Each thread that allocates is there.
    threads = report("summary", "out.nthb", "--thread", "exact", "--json", *DOMAIN, folder=tmp_path).ok()
    assert '"work"' in threads.out


def test_estimates_and_names_of_cpp(built: Callable[[str], Path], tmp_path: Path) -> None:
    program = str(built("words"))
    _nthbyte("--every", "1", "--", program, folder=tmp_path).ok()
    exact = _rows(tmp_path / "out.nthb")
    # One thread and a seed: the same samples in each run.
    _nthbyte("--every", "16K", "--seed", "7", program, folder=tmp_path).ok()
    estimates = _rows(tmp_path / "out.nthb")
    [fill] = [name for name in exact if name.startswith("Table<") and name.endswith("::fill")]
    for name in (fill, "churn"):
        truth, estimate = exact[name]["total_bytes"]["estimate"], estimates[name]["total_bytes"]
        assert 5_000_000 < truth < 40_000_000
        # Another C library may request other blocks in between.
        assert is_near(estimate, truth), name
        assert estimate["high"] - estimate["low"] < 0.5 * truth
    # Who calls `new` has the bytes.
    assert "operator new" not in exact
    alive = [row["alive"]["estimate"] for row in exact.values()]
    assert 4_000_000 < sum(alive) < exact[fill]["total_bytes"]["estimate"]


def test_the_period_follows_the_program(built: Callable[[str], Path], tmp_path: Path) -> None:
    _nthbyte("--", str(built("pace")), folder=tmp_path).ok()
    found = summary(tmp_path / "out.nthb", *DOMAIN)
    assert found["periods"][0] == 256 << 10 and len(found["periods"]) > 1
    total = _by_name(found)["make"]["total_bytes"]
    # Three times half of a 95 % interval: six standard deviations.
    assert total["estimate"] - 3 * (total["estimate"] - total["low"]) <= 8e9
    assert found["lost"] or total["estimate"] + 3 * (total["high"] - total["estimate"]) >= 8e9


def test_a_list_of_consecutive_numbers_in_rust(built: Callable[[str], Path], tmp_path: Path) -> None:
    """The array is folded on the stack, and the `Vec` takes one block each time."""
    done = _nthbyte("--every", "4K", "--", built("consecutive"), folder=tmp_path).ok()
    assert done.out == f"{1002 * 32767}\n"
    rows = _rows(tmp_path / "out.nthb")
    assert not any("folded" in name for name in rows)
    [collected] = [row for name, row in rows.items() if name.endswith("collected")]
    # A block of 32 periods is sampled with certainty.
    assert collected["total_bytes"]["low"] <= 1000 * 131072 <= collected["total_bytes"]["high"]
    assert summary(tmp_path / "out.nthb", *DOMAIN)["all"]["died_young"]["estimate"] == 0
    assert summary(tmp_path / "out.nthb", *DOMAIN)["all"]["freed"]["estimate"] > 100 * 2**20


@pytest.mark.parametrize(
    ("way", "status", "is_whole"),
    [
        ("return", 6, True),
        ("_exit", 5, True),
        (str(int(signal.SIGTERM)), -signal.SIGTERM, True),
        (str(int(signal.SIGINT)), -signal.SIGINT, True),
        ("abort", -signal.SIGABRT, False),
        (str(int(signal.SIGKILL)), -signal.SIGKILL, False),
    ],
)
def test_ends(way: str, status: int, is_whole: bool, built: Callable[[str], Path], tmp_path: Path) -> None:
    profile = tmp_path / "out.nthb"

    def is_written() -> bool:
        row = rows_so_far(profile, *DOMAIN).get("allocate")
        return row is not None and row["self_bytes"]["estimate"] == 10_000_000

    words = ["--every", "1", "--", built("ending"), way]
    done = _nthbyte(*words, folder=tmp_path, until=lambda: is_whole or is_written())
    assert (done.status, done.out) == (status, "ready\n")
    assert _rows(profile)["allocate"]["self_bytes"]["estimate"] == 10_000_000
    assert summary(profile, *DOMAIN)["complete"] == is_whole
    if way == "return":
        assert done.err.endswith("; see it with: nthbyte explain out.nthb\n")
    else:
        # Of the other ends, only a signal that nthbyte handles is said.
        by_signal = "nthbyte: ended by a signal; see it with: nthbyte explain out.nthb\n"
        assert done.err == (by_signal if is_whole and status < 0 else "")


@pytest.mark.parametrize("way", ["exit", "_exit"])
def test_a_signal_handler_ends_the_process_inside_malloc(
    way: str, built: Callable[[str], Path], tmp_path: Path
) -> None:
    """The interrupted thread holds a lock of the C library, which nobody will release."""
    for microseconds in range(1_000, 17_000, 2_000):
        # With one lock for all threads, too.
        environment = {"MALLOC_ARENA_MAX": "1"} if microseconds % 4_000 == 1_000 else {}
        words = ["--", built("interrupted"), str(microseconds), way]
        done = _nthbyte(*words, folder=tmp_path, timeout=120, environment=environment)
        assert (done.status, done.out) == (7, "")
        assert ("samples; see it with" in done.err) == (way == "exit"), done.err
        found = summary(tmp_path / "out.nthb", *DOMAIN)
        # Where nothing may be allocated, the end of the process waits a second at most for the profile's.
        assert found["complete"] or way == "_exit"
        assert found["all"]["freed"]["estimate"] > 0


def test_a_child_of_vfork_ends_alone(built: Callable[[str], Path], tmp_path: Path) -> None:
    """It has the memory of the program, and is ended by SIGTERM."""
    done = _nthbyte("--every", "1", "--", built("ending"), "vfork", folder=tmp_path)
    assert (done.status, done.out) == (6, "ready\n")
    found = summary(tmp_path / "out.nthb", *DOMAIN, "--top", "1000")
    assert _by_name(found)["allocate"]["self_bytes"]["estimate"] == 20_000_000
    assert found["complete"] and found["notes"] == []


@pytest.mark.parametrize(
    ("way", "status", "out", "times"),
    [
        ("fork", 0, "forked\nforked\n", 1),
        ("exit", 5, "", 1),
        ("main", 0, "last\n", 2),
        ("signal", 0, "got\n", 2),
        ("files", 0, "limited 0\n", 2),
    ],
)
def test_ends_of_threads(
    way: str, status: int, out: str, times: int, built: Callable[[str], Path], tmp_path: Path
) -> None:
    """Cancelled threads, and a main thread that ends before the process. Each stack begins with large variables."""
    done = _nthbyte("--every", "1", "--", built("threads"), way, folder=tmp_path, timeout=300)
    assert (done.status, done.out) == (status, out), done.err
    profile = tmp_path / "out.nthb"
    assert _rows(profile)["allocate"]["self_bytes"]["estimate"] == times * 10_000_000
    assert summary(profile, *DOMAIN)["complete"]
    assert "see it with" in done.err


def test_a_program_with_an_allocator_of_its_own(built: Callable[[str], Path], tmp_path: Path) -> None:
    """It comes before nthbyte's library, and lacks functions that the library has."""
    program = str(built("own"))
    plain = run([program], tmp_path).ok()
    done = _nthbyte("--every", "1", "--", program, folder=tmp_path).ok()
    assert done.out == plain.out == "7\n(nil)\n"


@pytest.mark.parametrize("is_python", [False, True])
def test_nobody_reads_stderr(is_python: bool, built: Callable[[str], Path], tmp_path: Path) -> None:
    """The line at the end does not end the program, which has SIGPIPE at its default."""
    code = "import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL)"
    words = ["-c", code] if is_python else ["--", str(built("ending")), "return"]
    command = INTERPRETER.words(["-m", "nthbyte", "run", "-f", "-o", "out.nthb", *words], tmp_path)
    read, write = os.pipe()
    os.close(read)
    # Without a buffer, nothing is left that the interpreter writes at its end.
    environment = {**os.environ, "PYTHONPATH": str(SITE), "PYTHONUNBUFFERED": ""}
    done = subprocess.run(command, cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=write, env=environment)
    os.close(write)
    assert done.returncode == (0 if is_python else 6)
    assert summary(tmp_path / "out.nthb")["complete"]


def test_nobody_waits_for_a_daemon(built: Callable[[str], Path], tmp_path: Path) -> None:
    """It has closed its stderr, so whoever reads that is at its end."""
    done = _nthbyte("--every", "1", built("ending"), "daemon", folder=tmp_path, timeout=120)
    assert (done.status, done.out) == (6, "ready\n")
    assert "see it with" in done.err
    (tmp_path / "go").touch()
    while not (tmp_path / "gone").exists():
        time.sleep(0.01)


def test_the_program_inherits_the_same(built: Callable[[str], Path], tmp_path: Path) -> None:
    """Python sets LC_CTYPE where the locale is C, and ignores SIGPIPE, as Rust does: the program does not see that.

    Nor that Rust opens files in place of closed ones.
    """
    program = [str(built("surroundings")), "a b", "\udcff"]
    for extra, closed in (
        ({"LANG": "C"}, ""),
        ({"LD_PRELOAD": "libc.so.6", "LANG": "C", "LC_ALL": ""}, ""),
        ({"ZEBRA": "1", "APE": "2"}, "0<&-"),
        ({}, "2>&-"),
    ):
        environment = {**extra, "EMPTY": ""}
        # A shell adds variables of its own; `env` starts the program in this environment only.
        words = ["sh", "-c", f'exec "$@" {closed}', "sh", "env", "-i"]
        words += [f"{name}={value}" for name, value in environment.items()]
        plain = run([*words, *program], tmp_path)
        launcher = [*words, sys.executable, "-c", _LAUNCH, "run", "-f", "-o", "out.nthb", "--", *program]
        done = run(launcher, tmp_path)
        assert done.ok().out == plain.ok().out
        if closed != "2>&-":
            assert done.err.startswith("nthbyte: ")
            assert done.err.count("\n") == 1


# Setting a new variable moves the environment to another place.
SETS_A_VARIABLE = """
#include <stdlib.h>
__attribute__((constructor)) static void set(void) { setenv("A_NEW_NAME", "1", 1); }
"""
SHOWS_VARIABLES = """
int system(const char *);
int main(void) { return system("env | grep -e NTHBYTE_PROGRAM -e PRELOAD -e NEW"); }
"""


def test_a_library_of_the_program_sets_a_variable_first(tmp_path: Path) -> None:
    (tmp_path / "set.c").write_text(SETS_A_VARIABLE)
    (tmp_path / "main.c").write_text(SHOWS_VARIABLES)
    for words in (
        ["-shared", "-fPIC", "-o", "set.so", "set.c"],
        ["-Wl,--no-as-needed", "-o", "main", "main.c", "./set.so"],
    ):
        subprocess.run(["cc", *words], cwd=tmp_path, check=True)
    done = _nthbyte("--", "./main", folder=tmp_path).ok()
    assert done.out == "A_NEW_NAME=1\n"
    assert [path.name for path in tmp_path.glob("*.nthb")] == ["out.nthb"]
    assert summary(tmp_path / "out.nthb", *DOMAIN)["complete"]


# Starts nthbyte without a variable that says where it is.
_LAUNCH = """
import sys
sys.argv[0] = "nthbyte"
sys.path.insert(0, SITE)
from nthbyte.__main__ import main
main()
""".replace("SITE", repr(str(Path(__file__).resolve().parents[2] / "build" / "site")))


def test_a_name_that_is_not_utf_8(built: Callable[[str], Path], tmp_path: Path) -> None:
    """It is no obstacle, neither in the profile's default name nor among the settings."""
    name = os.fsdecode(b"end\xff")
    shutil.copy(built("ending"), tmp_path / name)
    done = INTERPRETER.nthbyte("run", "--", f"./{name}", "return", folder=tmp_path)
    [profile] = tmp_path.glob("nthbyte-end_.*.nthb")
    assert done.status == 6 and profile.name in done.err
    assert summary(profile, *DOMAIN)["complete"]


def _refusal(done: Done, status: int = 2) -> str:
    assert (done.status, done.out) == (status, ""), done
    assert done.err.count("\n") == 1
    assert done.err.startswith("nthbyte: ")
    return done.err


def test_programs_that_cannot_be_profiled(built: Callable[[str], Path], tmp_path: Path) -> None:
    def refusal(*words: str | Path) -> str:
        return _refusal(_nthbyte(*words, folder=tmp_path))

    program = Path(shutil.copy(built("ending"), tmp_path / "program"))
    program.chmod(0o644)
    assert "chmod +x" in refusal("--", "./program")
    program.chmod(0o755)
    done = _nthbyte("--fixed", "--", "./program", folder=tmp_path)
    assert (done.status, done.out) == (1, "") and "leave it out" in done.err
    for option in (["--cpu"], ["--signal", "USR1"], ["--for", "1s"], ["--no-native"]):
        assert "leave" in refusal(*option, "--", "./program")
    arm = tmp_path / "arm"
    data = bytearray(program.read_bytes())
    data[18] = 183
    arm.write_bytes(data)
    arm.chmod(0o755)
    assert "AArch64" in refusal("./arm")
    (tmp_path / "script").write_text("#!/bin/sh\necho no\n")
    (tmp_path / "script").chmod(0o755)
    assert "script for /bin/sh" in refusal("./script")
    assert "-m nthbyte run" in refusal("--", _other_python(tmp_path), "x.py")
    assert "leave out" in refusal("--", sys.executable, "x.py")
    assert "No such file" in refusal("--", "./missing")
    assert "no file 'missing'" in refusal("--", "missing")
    cut = tmp_path / "cut"
    cut.write_bytes(program.read_bytes()[:70])
    cut.chmod(0o755)
    assert "cut" in refusal("./cut")
    if os.getuid() == 0:
        os.chown(program, 12345, 0)
        program.chmod(0o4755)
        assert "setuid" in refusal("./program")
    assert not (tmp_path / "out.nthb").exists()


def _other_python(folder: Path) -> Path:
    """A program with the name of a Python."""
    return Path(shutil.copy(folder / "program", folder / "python3.8"))


def test_a_static_program(tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text("int main(void) { return 3; }")
    for flag in ("-static", "-static-pie"):
        made = subprocess.run(["cc", flag, "-o", "main", "main.c"], cwd=tmp_path, capture_output=True)
        if made.returncode:
            pytest.skip("there is no static C library")
        assert "statically linked" in _refusal(_nthbyte("--", "./main", folder=tmp_path))


SHELL = """
f() { local words=() i; for ((i = 0; i < 3000; i++)); do words+=("word $i $RANDOM"); done; printf '%s\n' ${#words[@]}; }
f; (f); exit 9
"""

PERL = 'my %h; $h{$_ % 5000} .= "x" x 50 for 1 .. 60000; print scalar(keys %h), "\n";'

SOURCE = "int length(const char *text) { int at = 0; while (text[at]) at++; return at; }"

# Programs that nobody here wrote, by name; arguments, and a function that is among the first.
REAL = [
    ("bash", ["-c", SHELL], "xmalloc"),
    ("perl", ["-e", PERL], "Perl_safesysmalloc"),
    ("cc1", ["-quiet", "-O2", "-o", "-", "source.c"], "xmalloc"),
    ("git", ["config", "--global", "--list"], None),
    # It closes stderr before it ends.
    ("ls", ["-l", "/usr/lib"], None),
]


@pytest.mark.parametrize(
    ("name", "arguments", "function"), REAL, ids=lambda value: value if isinstance(value, str) else ""
)
def test_real_programs(name: str, arguments: list[str], function: str | None, tmp_path: Path) -> None:
    path = shutil.which(name)
    if name == "cc1" and shutil.which("gcc"):
        # The compiler itself, which the command `gcc` starts.
        words = ["gcc", "-print-prog-name=cc1"]
        path = shutil.which(subprocess.run(words, capture_output=True, text=True).stdout.strip())
    if path is None:
        pytest.skip(f"there is no {name}")
    (tmp_path / "source.c").write_text(SOURCE)
    words = [path if name == "cc1" else name, *arguments]
    plain = run(words, tmp_path)
    done = _nthbyte("--every", "4K", *words, folder=tmp_path)
    assert (done.status, done.out) == (plain.status, plain.out)
    assert done.err.replace(plain.err, "", 1).startswith("nthbyte: ")
    rows = summary(tmp_path / "out.nthb", *DOMAIN)["rows"]
    assert rows
    if function is not None:
        assert function in [row["name"] for row in rows[:10]]
    for export in ("firefox", "pprof", "speedscope", "collapsed"):
        report("export", "out.nthb", "--to", export, "-f", "-o", f"out.{export}", folder=tmp_path).ok()
    for command in ("tree", "memory", "leaks", "explain", "flamegraph"):
        text = report(command, "out.nthb", folder=tmp_path).ok().out
        assert "Python" not in text and "PyPy" not in text, command
