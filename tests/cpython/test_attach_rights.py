"""``nthbyte attach`` where no process may be traced: each refusal is real, and a prepared process answers."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

import harness
from cpython.attaching import Running, running
from seccomp import refusing

# Root that may not trace what has more rights.
WITHOUT_RIGHT = ["setpriv", "--bounding-set=-sys_ptrace"]

# Linux without Yama has no such file; with it, the refusal is the same.
YAMA = [
    *["unshare", "--mount", "sh", "-c"],
    "mount -t tmpfs none /proc/sys/kernel && mkdir /proc/sys/kernel/yama && "
    'echo "$0" > /proc/sys/kernel/yama/ptrace_scope && exec "$@"',
]

PTRACE = 101


def _with_filter(cpython: harness.Interpreter) -> list[str]:
    """A command whose calls of ptrace fail, as in a container."""
    code = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"
    return [cpython.path, *refusing(PTRACE), "-c", code]


def _attach(one: Running, before: list[str], *options: str) -> harness.Done:
    words = [*before, str(harness.COMMAND), "attach", str(one.number), "-o", "a.nthb", "--for", "0", *options]
    return harness.run(words, one.folder)


@pytest.mark.launcher
@pytest.mark.parametrize("reason", ["capability", "yama 1", "yama 2", "yama 3", "seccomp"])
def test_a_refusal_says_why_and_a_prepared_process_answers(
    cpython: harness.Interpreter, tmp_path: Path, reason: str
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give up the right")
    before, said = {
        "capability": (WITHOUT_RIGHT, "root without CAP_SYS_PTRACE may not attach"),
        "yama 1": ([*YAMA, "1", *WITHOUT_RIGHT], "(kernel.yama.ptrace_scope=1): use sudo"),
        "yama 2": ([*YAMA, "2", *WITHOUT_RIGHT], "(kernel.yama.ptrace_scope=2): use sudo"),
        "yama 3": ([*YAMA, "3", *WITHOUT_RIGHT], "(kernel.yama.ptrace_scope=3): start the program with"),
        "seccomp": (
            _with_filter(cpython),
            "a filter of system calls (seccomp), as containers have it, forbids ptrace",
        ),
    }[reason]
    if reason == "seccomp" and cpython.tree is not None:
        pytest.skip("the command runs outside of that system")
    if harness.run([*before, "true"] if reason != "seccomp" else ["true"], tmp_path).status != 0:
        pytest.skip("this machine does not allow to give up the right")
    with running(cpython, "print(input())", tmp_path) as one:
        refused = _attach(one, before)
        assert refused.status == 1 and said in refused.err and "NTHBYTE=ready" in refused.err
        assert refused.err.count("\n") == 1
        assert one.end("line\n").ok().out == "line\n"
    assert not list(tmp_path.glob("*.nthb"))
    prepared = f"import sys; sys.path.append({str(harness.SITE)!r}); import nthbyte; nthbyte.ready()\n"
    with running(cpython, f"{prepared}print('ready', flush=True); print(input())", tmp_path) as one:
        assert one.line() == "ready"
        assert "see it with: nthbyte explain a.nthb" in _attach(one, before).ok().err
        assert one.end("line\n").ok().out == "line\n"


def _refused(one: Running, before: list[str] | None = None) -> str:
    """The line with which it is refused; the program goes on."""
    refused = _attach(one, before or [])
    assert refused.status == 1 and refused.err.count("\n") == 1, refused.err
    assert one.process.poll() is None
    return refused.err


@pytest.mark.launcher
@pytest.mark.parametrize("tracer", ["strace", "gdb"])
def test_a_process_that_another_one_traces_is_refused(
    cpython: harness.Interpreter, tmp_path: Path, tracer: str
) -> None:
    if shutil.which(tracer) is None:
        pytest.skip(f"there is no {tracer}")
    options = ["-qq", "-o", "/dev/null"] if tracer == "strace" else ["-q", "-nx"]
    with running(cpython, "print(input())", tmp_path) as one:
        words = [tracer, *options, "-p", str(one.number)]
        with subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as tracing:
            status = Path(f"/proc/{one.number}/status")
            while f"TracerPid:\t{tracing.pid}\n" not in status.read_text():
                if tracing.poll() is not None:
                    pytest.skip(f"{tracer} may not trace here")
                time.sleep(0.02)
            said = _refused(one)
            assert f"is traced already, by {tracer} (process {tracing.pid}): end that first" in said
            tracing.kill()
        # A thread that was stopped by its tracer goes on once that has ended.
        assert "see it with" in _attach(one, [], "--timeout", "5min").ok().err
        assert one.end("line\n").ok().out == "line\n"


@pytest.mark.launcher
def test_a_shadow_stack_is_refused(cpython: harness.Interpreter, tmp_path: Path) -> None:
    """No processor that runs the tests has one: the kernel's word for it stands in what the command reads."""
    if os.geteuid() != 0:
        pytest.skip("only root can put a file in another one's place")
    hide = 'mount --bind "$0" "$1" && shift && exec "$@"'
    with running(cpython, "print(input())", tmp_path) as one:
        real = Path(f"/proc/{one.number}/status")
        seen = tmp_path / "status"
        lines = [line for line in real.read_text().splitlines() if not line.startswith("x86_Thread_features")]
        seen.write_text("\n".join([*lines, "x86_Thread_features:\tshstk wrss ", ""]))
        before = ["unshare", "--mount", "sh", "-c", hide, str(seen), str(real)]
        if harness.run([*before, "true"], tmp_path).status != 0:
            pytest.skip("this machine does not allow to hide a file")
        said = _refused(one, before)
        assert "has a shadow stack (CET)" in said and "NTHBYTE=ready" in said
        assert "see it with" in _attach(one, []).ok().err
        assert one.end("line\n").ok().out == "line\n"


@pytest.mark.launcher
def test_a_process_under_valgrind_is_refused(cpython: harness.Interpreter, tmp_path: Path) -> None:
    """Its registers are valgrind's: code that they lead to would run beside it."""
    if shutil.which("valgrind") is None or cpython.tree is not None:
        pytest.skip("there is no valgrind, or it runs outside of the interpreter's system")
    program = tmp_path / "program.py"
    program.write_text("print('here', flush=True); print(input())")
    words = ["valgrind", "--tool=none", "-q", cpython.path, "-S", str(program)]
    with subprocess.Popen(
        words, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        one = Running(process, tmp_path)
        assert one.line() == "here"
        said = _refused(one)
        assert "runs under valgrind, which executes its code itself: start it with NTHBYTE=ready" in said
        assert one.end("line\n").ok().out == "line\n"
