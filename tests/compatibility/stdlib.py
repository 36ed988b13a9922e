"""The interpreters' own suites: a module of the package `test` at a time, by regrtest."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from compatibility.comparison import Suite
from compatibility.execution import Command
from harness import SITE, Interpreter

INSIDE = Path(__file__).resolve().parent / "inside"

LIMIT = 300.0

# Modules that are not run, with the reason. They are in the document.
NOT_RUN = {
    "test_regrtest": "runs regrtest, and so other modules, in processes of its own for many minutes",
    "test_perf_profiler": "needs perf",
    "test_gdb": "needs gdb",
}


# The beginnings of the names of modules that take minutes, or wait: they come last, each in a process of its own.
SLOW = tuple(
    """
    test.test_asyncio test_asyncio test.test_concurrent test_concurrent test.test_multiprocessing
    test.test_io test_io test_multiprocessing test_socket test_subprocess test_threading test_ssl test_venv
    test_ensurepip test_tools test_capi test_compileall test_signal test_selectors test_pickle
    test_statistics test_decimal test_unicode test_tarfile test_zipfile test_idle test_largefile
    test_lib2to3 test_tokenize test_unparse test_embed test_faulthandler test_httplib test_urllib2
    test_ftplib test_poplib test_smtp test_imaplib test_queue test_logging test_time test_sys test_gdb
    test_perf test_interpreters test__interp test_pyrepl test_mailbox test_xmlrpc test_repl test_peg test_c
    test_distutils test_dtrace test_bigmem test_winreg test_ttk test_tk test_fork1 test_wait test_kqueue
    test_epoll test_profiling test_external test_free_threading test_build test_bufio test_zoneinfo
    test_datetime test_regrtest test_docxmlrpc test_eintr test_sqlite test_robotparser test_os
    """.split()
)


@functools.cache
def modules(interpreter: Interpreter) -> list[str]:
    """Returns the names of an interpreter's modules of tests; empty if it comes without them."""
    # Debian's package of the standard library has the runner, which lists modules that it does not find, too.
    if not _output(interpreter, "-c", "import test.test_gc; print('there')"):
        return []
    names = _output(interpreter, "-m", "test", "--list-tests").split()
    return [name for name in names if name.startswith(("test_", "test."))]


def suite(interpreter: Interpreter, *names: str, limit: float = LIMIT) -> Suite:
    """Returns the suite of these modules, in one process."""

    def command(folder: Path, recorded: Path, options: Sequence[str] | None, tests: Sequence[str]) -> Command:
        # One module is small enough to be repeated as a whole.
        program = [str(INSIDE / "record.py"), str(recorded), "-m", "test", *names]
        profile = folder.parent / "out.nthb"
        start = [] if options is None else ["-m", "nthbyte", "run", "-q", "-o", str(profile), *options]
        variables = {**_variables(interpreter), "TMPDIR": str(folder)}
        return Command(interpreter.words([*start, *program], folder), folder, variables)

    return Suite(str(interpreter), " ".join(names), command, limit)


def _output(interpreter: Interpreter, *words: str) -> str:
    done = subprocess.run(
        interpreter.words(list(words), "/"),
        env={**os.environ, **_variables(interpreter)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    return done.stdout


def _variables(interpreter: Interpreter) -> dict[str, str]:
    if not interpreter.is_pypy:
        return {"PYTHONPATH": str(SITE)}
    # A small nursery, so that short tests have collections, too.
    return {"PYTHONPATH": f"{SITE}:{INSIDE / 'pypy'}", "PYPY_GC_NURSERY": "4M"}
