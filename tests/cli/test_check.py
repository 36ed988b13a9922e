"""``nthbyte check``: for each row, what makes it fail is done, and the row says so."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import SITE, Done, Interpreter, run
from seccomp import refusing

pytestmark = pytest.mark.launcher

# Calls the command after a change of its surroundings.
CALL = "import sys; {}\nfrom nthbyte.check import main; sys.exit(main(['--json']))"

# What does not depend on the interpreter is tried with the tests' own.
THIS = Interpreter(sys.executable)

TIMER_CREATE, IOCTL, PROCESS_VM_READV = 222, 16, 310


def rows(done: Done) -> dict[str, Any]:
    """The rows by name."""
    assert not done.err, done.err
    return {row["what"]: row for row in json.loads(done.out)["rows"]}


def states(done: Done) -> dict[str, str]:
    """Whether each of them works."""
    return {what: row["state"] for what, row in rows(done).items()}


def after(interpreter: Interpreter, change: str, folder: Path, *first: str) -> Done:
    """Runs the command after a change, which is Python code."""
    return interpreter.python(*first, "-c", CALL.format(change), folder=folder)


def test_everything_works_here(interpreter: Interpreter, tmp_path: Path) -> None:
    done = interpreter.nthbyte("check", "--json", folder=tmp_path)
    found = rows(done)
    assert done.status == 0
    works = ["interpreter", "heap", "native memory", "time samples", "profile's folder", "reports"]
    assert {what: found[what]["state"] for what in works} == dict.fromkeys(works, "yes")
    frames = found["native frames"]
    assert (frames["state"], "CPython only" in frames["text"]) == (
        ("no", True) if interpreter.is_pypy else ("yes", False)
    )
    assert not list(tmp_path.iterdir()), "the recordings are removed"
    shown = interpreter.nthbyte("check", folder=tmp_path).ok().out
    assert [line.split("  ")[0] for line in shown.splitlines()] == list(found)


def test_an_interpreter_without_the_gil_is_refused(cpython: Interpreter, tmp_path: Path) -> None:
    if cpython.python_version == (3, 13):
        pytest.skip("the version that is known without the GIL")
    done = after(cpython, "sys.abiflags += 't'", tmp_path)
    found = rows(done)
    assert (done.status, found["interpreter"]["state"], found["heap"]["state"]) == (1, "no", "no")
    assert "use an ordinary build" in found["interpreter"]["text"]


def test_a_heap_that_records_already_is_not_tried(interpreter: Interpreter, tmp_path: Path) -> None:
    done = interpreter.nthbyte("run", "-q", "-c", CALL.format(""), folder=tmp_path)
    found = rows(done)
    assert (done.status, found["heap"]["state"], found["time samples"]["state"]) == (1, "no", "no")
    assert "running already" in found["heap"]["text"]


def test_a_library_that_is_missing_is_named(interpreter: Interpreter, tmp_path: Path) -> None:
    name = "_pypy" if interpreter.is_pypy else "_agent"
    change = f"import nthbyte.{name} as module; module.NATIVE_LIBRARY = '/missing.so'"
    found = rows(after(interpreter, change, tmp_path))
    assert (found["heap"]["state"], found["native memory"]["state"]) == ("yes", "no")
    assert "/missing.so" in found["native memory"]["text"]


def test_reports_need_their_program(tmp_path: Path) -> None:
    change = "import nthbyte._trial as module; module.COMMAND = '/missing'"
    found = rows(after(THIS, change, tmp_path))
    assert (found["reports"]["state"], found["native memory"]["state"]) == ("no", "unknown")
    assert found["reports"]["way_out"] == "install nthbyte again"


def test_calls_that_a_sandbox_refuses(cpython: Interpreter, tmp_path: Path) -> None:
    def without(call: int, error: int = errno.EPERM) -> dict[str, Any]:
        return rows(cpython.python(*refusing(call, error), "-c", CALL.format(""), folder=tmp_path))

    found = without(TIMER_CREATE)
    assert (found["heap"]["state"], found["time samples"]["state"]) == ("yes", "no")
    found = without(IOCTL, errno.ENOTTY)
    assert found["page tables"]["state"] == "partly"
    assert "PAGEMAP_SCAN" in found["page tables"]["text"]
    found = without(PROCESS_VM_READV)
    assert (found["heap"]["state"], found["native frames"]["state"]) == ("partly", "no")


def test_a_folder_that_takes_no_file() -> None:
    done = THIS.nthbyte("check", "--json", folder=Path("/proc"))
    found = rows(done)
    assert (done.status, found["profile's folder"]["state"], found["heap"]["state"]) == (1, "no", "yes")
    assert "change to a folder" in found["profile's folder"]["way_out"]


def test_descriptors_that_do_not_suffice(cpython: Interpreter, tmp_path: Path) -> None:
    leave = "import os, resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({}, 64))"
    # All that the interpreter needs is loaded, and the row is asked for what a recording would need.
    change = (
        leave.format("len(os.listdir('/proc/self/fd')) + 1")
        + "\nfrom nthbyte._limits import free_descriptors"
        + "\nprint([free_descriptors('self', needed).state for needed in (1, 2, 3, None)]); sys.exit()"
    )
    assert after(cpython, change, tmp_path).ok().out == "['yes', 'yes', 'no', 'yes']\n"
    found = rows(after(cpython, leave.format("sys.maxsize and 64"), tmp_path))
    assert found["free descriptors"]["state"] == "yes"
    assert found["free descriptors"]["text"].endswith(" of 64")


@pytest.mark.parametrize(
    ("files", "state", "text"),
    [
        ({"a/b/memory.max": "max", "a/b/memory.current": "5"}, "yes", "none"),
        # A group above leaves less.
        (
            {
                "a/memory.max": "67108864",
                "a/memory.current": "33554432",
                "a/b/memory.max": "134217728",
                "a/b/memory.current": "33554432",
            },
            "yes",
            "memory 64.0 MiB, 32.0 MiB of it left",
        ),
        ({"a/b/memory.max": "20000000", "a/b/memory.current": "19000000"}, "partly", "memory 19.1 MiB"),
        # In a container, the group is at the root.
        ({"pids.max": "7", "pids.current": "7"}, "no", "7 threads, 0 of them left"),
        (
            {"memory/c/memory.limit_in_bytes": "9223372036854771712", "memory/c/memory.usage_in_bytes": "1"},
            "yes",
            "none",
        ),
        (
            {"memory/c/memory.limit_in_bytes": "1048576", "memory/c/memory.usage_in_bytes": "0"},
            "partly",
            "memory 1.0 MiB",
        ),
    ],
)
def test_limits_of_control_groups(
    files: dict[str, str], state: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SITE))
    from nthbyte import _limits

    (tmp_path / "cgroup").write_text("4:memory:/c\n0::/a/b\n")
    for name, content in files.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    real = open
    monkeypatch.setattr(
        "builtins.open",
        lambda path, *rest: real(tmp_path / "cgroup" if path == "/proc/self/cgroup" else path, *rest),
    )
    row = _limits.cgroup_limits("self", str(tmp_path / "tree"))
    assert (row.state, row.text.startswith(text)) == (state, True), row.text


def test_a_process_that_runs(cpython: Interpreter, tmp_path: Path) -> None:
    def look(process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        try:
            pid = str(process.pid)
            return rows(run([sys.executable, "-m", "nthbyte", "check", pid, "--json"], tmp_path))
        finally:
            process.stdin.close()
            process.wait()

    def started(*words: str) -> subprocess.Popen[str]:
        environment = {"PYTHONPATH": str(SITE), "PATH": "/usr/bin:/bin"}
        return subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment
        )

    waiting = "print(flush=True); input()"
    found = look(started("/bin/sh", "-c", "echo; read line"))
    assert (found["interpreter"]["state"], "is not a Python" in found["interpreter"]["text"]) == ("no", True)
    if cpython.tree is not None:
        # In another root folder, it is not this machine's.
        return
    found = look(started(cpython.path, "-c", waiting))
    assert (found["recorded"]["state"], found["interpreter"]["state"], found["heap"]["state"]) == (
        "no",
        "yes",
        "yes",
    )
    found = look(started(cpython.path, "-m", "nthbyte", "run", "-q", "-o", "x.nthb", "-c", waiting))
    assert (found["recorded"]["state"], found["recorded"]["text"]) == ("yes", f"into {tmp_path / 'x.nthb'}")
    done = run([sys.executable, "-m", "nthbyte", "check", "99999999"], tmp_path)
    assert (done.status, done.err) == (1, "nthbyte: there is no process 99999999\n")
