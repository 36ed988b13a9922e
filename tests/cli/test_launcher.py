"""A program behaves under ``nthbyte run`` as under plain Python."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from harness import SCRIPT, Interpreter

SHOW = """
import sys

def look(name, value):
    shown = isinstance(value, (str, type(None), dict)) and name != "__builtins__"
    return value if shown else type(value).__name__

print({name: look(name, value) for name, value in sorted(globals().items()) if name != "look"})
print(getattr(__loader__, "name", None), getattr(__loader__, "path", None), type(__builtins__))
print(sys.argv, getattr(sys, "orig_argv", None), sys.path, sys.flags)
print(sys.modules["__main__"].__dict__ is globals(), sys._getframe().f_code.co_filename)
"""

FAIL = """
def inner():
    raise ValueError("wrong")

def outer():
    try:
        {}["missing"]
    except KeyError:
        inner()

outer()
"""

# The command lines, each with its standard input.
PROGRAMS: dict[str, tuple[list[str], str]] = {
    "script": (["show.py", "-o", "x", "--every", "1"], ""),
    "script in a folder": (["package/../package/show.py"], ""),
    "link to a script": (["link.py"], ""),
    "package": (["-m", "package", "-m", "x"], ""),
    "module": (["-m", "package.show", "--help"], ""),
    "module, short form": (["-mpackage.show"], ""),
    "folder": (["package", "x"], ""),
    "zip file": (["app.zip", "x"], ""),
    "code": (["-c", SHOW, "-c", "x"], ""),
    "code that is indented": (["-c", "\n  if 1:\n    print('in')\n  1/0"], ""),
    "standard input": (["-", "x"], SHOW),
    "exception": (["fail.py"], ""),
    "exception in a module": (["-m", "package.fail"], ""),
    "exception in code": (["-c", FAIL], ""),
    "exception on standard input": (["-"], FAIL),
    "exception in a zip file": (["fail.zip"], ""),
    "syntax error": (["-c", "x = = 1"], ""),
    "syntax error in a script": (["syntax.py"], ""),
    "encoding": (["latin.py"], ""),
    "warning in a script": (["warn.py"], ""),
    "missing module": (["-m", "missing"], ""),
    "module without a specification": (["-m", "package.unspecified"], ""),
    "module that deletes its specification": (["-m", "package.deleted"], ""),
    "module that empties itself": (["-m", "package.emptied"], ""),
    "long command line": (["-c", "import sys; print(len(str(sys.argv)))", *(["x" * 40] * 4000)], ""),
    "module without main": (["-m", "package.empty"], ""),
    "exit": (["-c", "import sys; sys.exit()"], ""),
    "exit with a number": (["-c", "import sys; sys.exit(7)"], ""),
    "exit with a text": (["-c", "import sys; sys.exit('bye')"], ""),
    "exit with a large number": (["-c", "raise SystemExit(256 + 3)"], ""),
    "os._exit": (["-c", "import os; os._exit(5)"], ""),
    "interrupt": (["-c", "raise KeyboardInterrupt"], ""),
    "killed": (["-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"], ""),
    "terminated": (["-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"], ""),
    "abort": (["-c", "import os; os.abort()"], ""),
    "excepthook": (
        ["-c", "import sys; sys.excepthook = lambda *a: print('hook', a[:2], a[2].tb_next)\n1/0"],
        "",
    ),
    "no excepthook": (["-c", "import sys; del sys.excepthook\n1/0"], ""),
    "atexit": (["-c", "import atexit; atexit.register(print, 'bye'); print('hello')"], ""),
    "exception at exit": (["-c", "import atexit; atexit.register(divmod, 1, 0); 2/0"], ""),
    "thread": (["-c", "import threading; threading.Thread(target=print, args=('late',)).start()"], ""),
    "exception in a thread": (["thread.py"], ""),
    "reading": (["-c", "print(input())"], "a line"),
    "destructor at the end": (["-c", "class A:\n    def __del__(self): print('gone')\na = A()"], ""),
    "stack": (["-c", "import inspect; print(inspect.currentframe().f_code.co_name)"], ""),
}

NOT_LOADED = {"syntax error", "syntax error in a script", "missing module", "module without main"}

THREAD = """
import threading
t = threading.Thread(target=lambda: 1/0, name="worker")
t.start(); t.join()
"""


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    package = folder / "package"
    package.mkdir()
    for name in ("__init__.py", "empty/__init__.py"):
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).touch()
    for path in (folder / "show.py", package / "show.py", package / "__main__.py"):
        path.write_text(SHOW)
    for path in (folder / "fail.py", package / "fail.py"):
        path.write_text(FAIL)
    (package / "unspecified.py").write_text("__spec__ = None\nraise SystemExit(3)\n")
    (package / "deleted.py").write_text("del __spec__\nraise SystemExit(3)\n")
    (package / "emptied.py").write_text("globals().clear()\n1/0\n")
    (folder / "link.py").symlink_to(package / "show.py")
    (folder / "syntax.py").write_text("if True:\nprint(1)\n")
    (folder / "latin.py").write_bytes(b"# coding: latin-1\nprint(ascii('\xe4'))\n")
    (folder / "warn.py").write_text("print(1)\nprint(() is 1)\n")
    (folder / "thread.py").write_text(THREAD)
    for name, source in (("app.zip", SHOW), ("fail.zip", FAIL)):
        with zipfile.ZipFile(folder / name, "w") as file:
            file.writestr("__main__.py", source)
    return folder


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_behave_as_under_plain_python(
    program: str, interpreter: Interpreter, programs: Path, tmp_path: Path
) -> None:
    words, stdin = PROGRAMS[program]
    plain = interpreter.python(*words, folder=programs, stdin=stdin)
    profile = tmp_path / "out.nthb"
    profiled = interpreter.nthbyte("run", "-q", "-o", profile, *words, folder=programs, stdin=stdin)
    assert profiled.out == plain.out
    assert profiled.err == plain.err
    assert profiled.status == plain.status
    # A program that cannot be loaded leaves no profile.
    assert profile.exists() == (program not in NOT_LOADED and "IndentationError" not in plain.err)


@pytest.mark.parametrize(
    ("written", "flags"),
    [
        (("-um",), ("-u",)),
        (("-bB", "-sm"), ("-bB", "-s")),
        (("-Xfaulthandler", "-W", "ignore", "-m"), ("-Xfaulthandler", "-W", "ignore")),
        (("-m",), ()),
    ],
)
def test_the_launchers_own_options_may_be_written_together_with_m(
    written: tuple[str, ...], flags: tuple[str, ...], cpython: Interpreter, tmp_path: Path
) -> None:
    """Programs start themselves again by ``sys.orig_argv``."""
    program = "import sys; print(sys.orig_argv)"
    words = (*written, "nthbyte", "run", "-q", "-o", "out.nthb", "-c", program)
    assert cpython.python(*words, folder=tmp_path) == cpython.python(*flags, "-c", program, folder=tmp_path)


def test_compiled_code_under_another_name(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("print(__name__, __file__, type(__loader__).__name__)")
    cpython.python("-c", "import py_compile; py_compile.compile('app.py', cfile='app')", folder=tmp_path).ok()
    plain = cpython.python("app", folder=tmp_path).ok()
    done = cpython.nthbyte("run", "-q", "-o", "out.nthb", "app", folder=tmp_path).ok()
    assert (done.out, done.err) == (plain.out, plain.err)


def test_warnings_of_encodings_are_not_for_nthbyte(interpreter: Interpreter, tmp_path: Path) -> None:
    flags = ("-X", "warn_default_encoding", "-W", "error")
    done = interpreter.nthbyte("run", "-o", "out.nthb", "-c", "pass", folder=tmp_path, flags=flags).ok()
    [line] = done.err.splitlines()
    assert "see it with" in line


def test_a_launcher_may_set_the_arguments(cpython: Interpreter, tmp_path: Path) -> None:
    """``sys.orig_argv`` is still the interpreter's then, and there may be fewer of them."""
    program = "import sys; print(sys.argv, len(sys.orig_argv))"
    launcher = (
        "import sys; from nthbyte.__main__ import main; "
        f"sys.argv = ['nthbyte', 'run', '-q', '-o', 'out.nthb', '-c', {program!r}, 'x']; main().execute()"
    )
    assert cpython.python("-c", launcher, folder=tmp_path).ok().out == "['-c', 'x'] 3\n"


WITH_LONG_ARGUMENTS = """
import multiprocessing, sys
def work(queue): queue.put(len(sys.argv))
if __name__ == "__main__":
    for method in ("spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.SimpleQueue()
        process = context.Process(target=work, args=(queue,))
        process.start()
        process.join()
        print(process.exitcode, queue.get())
"""


def test_processes_of_a_program_with_many_arguments(interpreter: Interpreter, tmp_path: Path) -> None:
    """Linux gives one argument 128 KiB at most, and multiprocessing's has nthbyte's settings in it."""
    (tmp_path / "app.py").write_text(WITH_LONG_ARGUMENTS)
    words = ["run", "-q", "-o", "out.nthb", "app.py", *(["y" * 1000] * 50), *(["z" * 40] * 2500)]
    done = interpreter.nthbyte(*words, folder=tmp_path).ok()
    assert done.out == "0 2551\n0 2551\n"
    assert len(list(tmp_path.glob("out.*.nthb"))) >= 2


def test_code_of_dash_c_is_utf_8_despite_a_coding_comment(cpython: Interpreter, tmp_path: Path) -> None:
    words = ("-c", "# coding: latin-1\nprint(ascii('\xe4'))")
    assert cpython.nthbyte("run", "-q", *words, folder=tmp_path) == cpython.python(*words, folder=tmp_path)


def test_the_nthbyte_script_behaves_like_the_module(
    interpreter: Interpreter, programs: Path, tmp_path: Path
) -> None:
    for words in (["show.py", "-o", "x"], ["-m", "package.show"], ["-c", SHOW, "x"], ["fail.py"]):
        plain = interpreter.python(*words, folder=programs)
        options = ["-q", "-f", "-o", tmp_path / "out.nthb"]
        assert interpreter.python(SCRIPT, "run", *options, *words, folder=programs) == plain


def test_run_prints_one_line_at_the_end(interpreter: Interpreter, programs: Path, tmp_path: Path) -> None:
    script = programs / "show.py"
    plain = interpreter.python(script, folder=tmp_path)
    done = interpreter.nthbyte("run", script, folder=tmp_path)
    assert done.out == plain.out
    [profile] = tmp_path.glob("nthbyte-show.*.nthb")
    [line] = done.err.splitlines()
    assert line.startswith("nthbyte: ")
    assert profile.name in line
    assert profile.stat().st_mode & 0o777 == 0o600


BUSY = "import time\nwhile time.process_time() < 0.3: pass\n"
WITH_CHILDREN = {
    "another program": f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])",
    "another program that goes on": f"""
import subprocess, sys
code = {BUSY!r} + "print(flush=True); sys.stdin.read()"
child = subprocess.Popen([sys.executable, "-c", "import sys\\n" + code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
""",
    "a fork with a profile": f"""
import os
if not (child := os.fork()):
    kept = [bytearray(1000) for _ in range(10000)]
    exec({BUSY!r})
else:
    os.waitpid(child, 0)
""",
}


@pytest.mark.parametrize("way", WITH_CHILDREN)
def test_the_line_mentions_processes_without_a_profile(
    way: str, interpreter: Interpreter, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(WITH_CHILDREN[way])
    done = interpreter.nthbyte("run", "--every", "16KiB", "app.py", folder=tmp_path).ok()
    [line] = done.err.splitlines()
    is_followed = way == "a fork with a profile"
    assert ("s of CPU time and are not in the profile" in line) == (not is_followed), line
    assert ("1 child process" in line) == is_followed, line


RECURSE = """
import sys

def depth(reached):
    try:
        return depth(reached + 1)
    except RecursionError:
        return reached

def limited(limit):
    sys.setrecursionlimit(limit)
    return depth(1)

print(depth(1), sys.getrecursionlimit(), limited(300), limited(3000), depth(1), sys.getrecursionlimit())
"""


def test_recursion_is_as_deep_as_in_plain_python(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(RECURSE)
    for program in (["app.py"], ["-m", "app"], ["-c", RECURSE]):
        plain = cpython.python(*program, folder=tmp_path).ok()
        for words in (["-m", "nthbyte"], [str(SCRIPT)]):
            assert cpython.python(*words, "run", "-q", *program, folder=tmp_path) == plain


# What only the start needs is gone while the program runs; after it was stopped, a session can begin anew.
AFTER_THE_START = """
import gc, sys, types
START = ("nthbyte._command_line", "nthbyte._options", "nthbyte._size")
gc.collect()
print([name for name in START if name in sys.modules])
print({one.__module__ for one in gc.get_objects() if type(one) is types.FunctionType} & {*START})
import nthbyte
first = nthbyte.stop()
with nthbyte.Profiler("again.nthb", every="64KiB") as profiler:
    kept = [bytearray(1000) for _ in range(10_000)]
print(profiler.result.samples > 0, issubclass(nthbyte.Error, Exception))
try:
    nthbyte.stop()
except nthbyte.Error as error:
    print(error)
"""


def test_what_only_the_start_needs_is_dropped(interpreter: Interpreter, tmp_path: Path) -> None:
    done = interpreter.nthbyte("run", "-o", "out.nthb", "-c", AFTER_THE_START, folder=tmp_path).ok()
    lines = ["[]", "set()", "True True", "nthbyte is not running: nothing to stop"]
    assert done.out.splitlines() == lines
    # The program has ended the session itself, so there is no line at the end.
    assert done.err == ""
    assert {path.name for path in tmp_path.glob("*.nthb")} == {"out.nthb", "again.nthb"}


# The folders whose content the interpreter has read, as far as the program must not see that.
READ = """
import os, sys
path = [os.path.abspath(entry) for entry in sys.path]
read = [folder for folder, finder in sys.path_importer_cache.items() if finder is not None]
print([folder for folder in read if folder not in path and "nthbyte" in folder])
"""


def test_no_folder_of_nthbyte_was_read(interpreter: Interpreter, tmp_path: Path) -> None:
    launcher = tmp_path / "nthbyte-bin"
    launcher.mkdir()
    shutil.copy(SCRIPT, launcher / "nthbyte")
    (launcher / "app.py").write_text(READ)
    words = [launcher / "nthbyte", "run", "-q"]
    assert interpreter.python(*words, "-c", READ, folder=tmp_path).ok().out == "[]\n"
    # Its own folder is the program's business.
    interpreter.python(*words, launcher / "app.py", folder=tmp_path).ok()
