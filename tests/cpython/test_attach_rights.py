"""``nthbyte attach`` where no process may be traced: each refusal is real, and a prepared process answers."""

from __future__ import annotations

import os
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
