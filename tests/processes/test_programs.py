"""Programs that a recorded process starts are recorded, however they are started."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

import harness
from cpython.attaching import running
from harness import Done, Interpreter, summary

# In place of an installation: the folder's `.pth` file is read at the start of each interpreter.
CUSTOMIZE = f"import site; site.addsitedir({str(harness.SITE)!r})\n"

# Prints its number, and what it sees of the way by which it has joined.
CHILD = """
import os
def {name}(): return [bytearray(1000) for _ in range(400)]
kept = {name}()
print("{name}", os.getpid(), [name for name in os.environ if name == "NTHBYTE_JOIN"], flush=True)
"""

PROGRAM = """
import os, subprocess, sys
python, path = sys.executable, os.environ["PYTHONPATH"]
def code(name):
    return open("child.py").read().replace("{name}", name)
def waited(pid):
    assert os.waitpid(pid, 0)[1] == 0
subprocess.run([python, "-c", code("subprocess_run")], check=True)
subprocess.run([python, "-c", code("own_environment")], check=True, env={"PYTHONPATH": path, "HOME": "/"})
subprocess.run([python.encode(), b"-c", code("bytes_environment").encode()], check=True, env=os.environb)
with open("by_shell.py", "w") as file:
    file.write(code("by_shell"))
assert os.system(f"{python} by_shell.py") == 0
waited(os.spawnl(os.P_NOWAIT, python, python, "-c", code("spawnl")))
if hasattr(os, "posix_spawn"):
    waited(os.posix_spawn(python, [python, "-c", code("posix_spawn")], os.environ))
if not (child := os.fork()):
    os.execve(python, [python, "-c", code("forked_execve")], {"PYTHONPATH": path})
waited(child)
subprocess.run([python, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:], check=True)",
                python, "-c", code("grandchild")], check=True)
assert not [name for name in os.environ if name == "NTHBYTE_JOIN"]
kept = [bytearray(1000) for _ in range(400)]
os.execv(python, [python, "-c", code("execv")])
"""

# Neither of them can join.
APART = """
import subprocess, sys
subprocess.run([sys.executable, "-S", "-c", "print('no site')"], check=True)
subprocess.run([sys.executable, "-m", "nthbyte", "run", "-q", "-o", "own.nthb", "-c", "print('own')"], check=True)
"""


def run(interpreter: Interpreter, code: str, folder: Path, *options: str) -> Done:
    """Runs a program under nthbyte, which its interpreter has as if it was installed."""
    (folder / "sitecustomize.py").write_text(CUSTOMIZE)
    (folder / "child.py").write_text(CHILD)
    (folder / "app.py").write_text(code)
    path = f"{folder}:{harness.SITE}"
    words = ("run", "--every", "4KiB", *options, "-o", "app.nthb", "app.py")
    return interpreter.nthbyte(*words, folder=folder, environment={"PYTHONPATH": path}).ok()


def recorded(folder: Path) -> dict[int, Any]:
    """The processes of the family, by their numbers."""
    processes = summary(folder / "app.nthb", "--all")["processes"]
    return {process["pid"]: process for process in processes}


def test_programs_join_however_they_are_started(interpreter: Interpreter, tmp_path: Path) -> None:
    done = run(interpreter, PROGRAM, tmp_path)
    children = {line.split()[0]: line.split(maxsplit=2)[1:] for line in done.out.splitlines()}
    assert len(children) >= 8
    # No process sees how it has joined.
    assert {shown for _, shown in children.values()} == {"[]"}
    rows = {row["name"] for row in summary(tmp_path / "app.nthb", "--all", "--top", "0")["rows"]}
    found = {name for name in children if any(row.split(".")[0] == name for row in rows)}
    assert found == set(children)
    processes = summary(tmp_path / "app.nthb", "--all")["processes"]
    assert {int(pid) for pid, _ in children.values()} <= {process["pid"] for process in processes}
    words = {word for process in processes for word in process["command"]}
    assert "by_shell.py" in words and "app.py" in words
    # What was recorded before the process replaced itself is there.
    assert processes[0]["bytes"]["estimate"] > 400_000
    assert "explain" not in done.err


def test_what_is_left_alone_is_counted(interpreter: Interpreter, tmp_path: Path) -> None:
    done = run(interpreter, APART, tmp_path)
    name = re.escape(Path(interpreter.path).name.rstrip("0123456789."))
    assert re.search(rf"samples, not recorded: {name}[0-9.]*[;,]", done.err), done.err
    assert sorted(path.name for path in tmp_path.glob("*.nthb")) == ["app.nthb", "own.nthb"]


# The environment of a program whose nthbyte has been removed in part: without a variable, too.
REMOVED = """
import os, subprocess, sys
code = "import sys; print([name for name in sys.modules if name.startswith('nthbyte')], flush=True)"
for variables in {}, {"NTHBYTE": "ready"}, {"NTHBYTE": "on", "NTHBYTE_OUTPUT": "own.nthb"}:
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": "half", "HOME": "/", **variables})
"""


@pytest.mark.launcher
@pytest.mark.parametrize("left", ["the line", "the line and an empty folder", "the package"])
def test_a_half_removed_nthbyte_is_silent_and_counted(
    interpreter: Interpreter, tmp_path: Path, left: str
) -> None:
    half = tmp_path / "half"
    half.mkdir()
    (half / "sitecustomize.py").write_text(f"import site; site.addsitedir({str(half)!r})\n")
    if left == "the package":
        (half / "nthbyte").symlink_to(harness.SITE / "nthbyte")
    else:
        shutil.copy(harness.SITE / "nthbyte.pth", half)
    if left == "the line and an empty folder":
        (half / "nthbyte").mkdir()
    done = run(interpreter, REMOVED, tmp_path)
    # A namespace package is all that an empty folder may be.
    assert set(done.out.splitlines()) <= {"[]", "['nthbyte']"}
    assert done.out.count("\n") == 3
    [line] = done.err.splitlines()
    assert re.search(r"samples, not recorded: 3 of (python|pypy)[0-9.]*[;,]", line), line
    assert [path.name for path in tmp_path.glob("*.nthb")] == ["app.nthb"]


# Another user starts an interpreter that has root's rights, with each variable of nthbyte.
SETUID = """
import os, subprocess, sys
code = "import os, sys; print(os.geteuid(), *[name for name in sys.modules if name.startswith('nthbyte.')], flush=True)"
for variables in {}, {"NTHBYTE": "ready"}, {"NTHBYTE": "on", "NTHBYTE_OUTPUT": "own.nthb"}:
    subprocess.run(["elevated/python3", "-c", code], check=True, env={**os.environ, **variables})
"""


@pytest.mark.launcher
def test_a_program_with_other_rights_is_not_recorded(cpython: Interpreter, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give its rights to a program")
    asked = "import os, sys; print(sys.prefix, os.path.realpath(sys.executable))"
    prefix, path = cpython.python("-c", asked, folder=tmp_path).ok().out.split()
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    # The other user cannot look into pytest's folders.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "elevated").mkdir()
        shutil.copy(f"{cpython.tree or ''}{path}", folder / "elevated" / "python3")
        (folder / "elevated" / "python3").chmod(0o4755)
        (folder / "sitecustomize.py").write_text(CUSTOMIZE)
        (folder / "app.py").write_text(SETUID)
        variables = {"PYTHONPATH": f"{folder}:{harness.SITE}", "PYTHONHOME": prefix}

        def run_as_nobody(*words: str) -> Done:
            inside = Interpreter("/usr/bin/env", cpython.tree).words([*nobody, *words], folder)
            return harness.run(inside, folder, environment=variables)

        if run_as_nobody(cpython.path, "-c", "import nthbyte, os").status != 0:
            pytest.skip("another user cannot look into these folders")
        if run_as_nobody("elevated/python3", "-c", "import os; assert os.geteuid() == 0").status != 0:
            pytest.skip("a program has the rights of its user here, whatever its file says")
        done = run_as_nobody(cpython.path, "-m", "nthbyte", "run", "-o", "app.nthb", "app.py").ok()
        assert done.out == "0 nthbyte._hook\n" * 3
        [line] = done.err.splitlines()
        assert "samples, not recorded: 3 of python3;" in line
        assert [path.name for path in folder.glob("*.nthb")] == ["app.nthb"]


@pytest.mark.launcher
def test_children_may_be_left_out(interpreter: Interpreter, tmp_path: Path) -> None:
    code = """
import multiprocessing, os, subprocess, sys
def work(): kept = [bytearray(1000) for _ in range(400)]
if __name__ == "__main__":
    subprocess.run([sys.executable, "-c", "import os; print(os.environ.get('NTHBYTE_JOIN'))"])
    for method in ("fork", "spawn"):
        process = multiprocessing.get_context(method).Process(target=work)
        process.start()
        process.join()
        assert process.exitcode == 0
"""
    done = run(interpreter, code, tmp_path, "--no-children")
    assert [path.name for path in tmp_path.glob("*.nthb")] == ["app.nthb"]
    assert done.out == "None\n"


def test_a_family_has_a_bounded_number_of_profiles(cpython: Interpreter, tmp_path: Path) -> None:
    code = """
import subprocess, sys
for number in range(100):
    open(f"app.{1_000_000_000 + number}.nthb", "w").close()
for _ in range(3):
    subprocess.run([sys.executable, "-c", ""], check=True)
"""
    done = run(cpython, code, tmp_path)
    assert len(list(tmp_path.glob("app*.nthb"))) == 101
    assert re.search(r"not recorded: 3 of python[0-9.]*: a family has 100 profiles at most", done.err), (
        done.err
    )


# Starts a program while it is recorded, and one afterwards.
STARTS = f"""
import os, shlex, subprocess, sys
CHILD = {CHILD!r}
for name in ("by_subprocess", "by_posix_spawn", "by_execv", "by_system", "by_popen", "by_shell", "afterwards"):
    words = [sys.executable, "-c", CHILD.replace("{{name}}", name)]
    input()
    if name == "by_posix_spawn":
        os.waitpid(os.posix_spawn(words[0], words, os.environ), 0)
    elif name == "by_execv":
        if not (child := os.fork()):
            os.execv(words[0], words)
        os.waitpid(child, 0)
    elif name == "by_system":
        assert os.system("exit 3") == 3 << 8
        assert os.system(shlex.join(words).encode()) == 0
    elif name == "by_popen":
        print(os.popen(shlex.join(words)).read(), end="", flush=True)
    elif name == "by_shell":
        subprocess.run(shlex.join(words), shell=True, check=True)
    else:
        subprocess.run(words, check=True)
print(os.environ.get("NTHBYTE_JOIN"))
"""


@pytest.mark.launcher
def test_programs_join_that_an_attached_process_starts(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(CUSTOMIZE)
    with running(cpython, STARTS, tmp_path, PYTHONPATH=str(tmp_path)) as one:
        attached = one.attach("-o", "app.nthb", "--every", "4KiB")
        assert attached.stderr is not None
        assert "recording" in attached.stderr.readline()
        numbers = []
        names = ["by_subprocess", "by_posix_spawn", "by_execv", "by_system", "by_popen", "by_shell"]
        for name in names:
            one.say()
            said, number, shown = one.line().split()
            assert (said, shown) == (name, "[]")
            numbers.append(number)
        assert "6 child processes; see it with" in one.nthbyte("detach").ok().err
        attached.communicate()
        one.say()
        assert one.line().split()[0] == "afterwards"
        assert one.end().ok().out == "None\n"
    # A fork that has replaced itself has two.
    processes = {path.name.split(".")[1].partition("-")[0] for path in tmp_path.glob("app.*.nthb")}
    assert processes - {"nthb"} == set(numbers)
    rows = {row["name"] for row in summary(tmp_path / "app.nthb", "--all", "--top", "0")["rows"]}
    assert set(names) <= rows


# A fork, multiprocessing and another program, once the program is asked to go on: twice.
FAMILY = """
import multiprocessing, os, subprocess, sys
def work(): kept = [bytearray(1000) for _ in range(400)]
if __name__ == "__main__":
    while input() != "end":
        for method in ("fork", "spawn", "forkserver"):
            process = multiprocessing.get_context(method).Process(target=work)
            process.start()
            process.join()
            assert process.exitcode == 0
        assert os.system(f"{sys.executable} -c 'kept = [bytearray(1000) for _ in range(400)]'") == 0
        print("started", flush=True)
"""


@pytest.mark.launcher
def test_an_attached_process_has_its_children_or_not(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(CUSTOMIZE)
    with running(cpython, FAMILY, tmp_path, PYTHONPATH=str(tmp_path)) as one:
        # The fork server begins in the first recording: what it forks belongs to that one, and to no later one.
        for output, options, count in (("all", [], 4), ("more", [], 3), ("one", ["--no-children"], 0)):
            attached = one.attach("-o", f"{output}.nthb", "--every", "4KiB", *options)
            assert attached.stderr is not None
            assert "recording" in attached.stderr.readline()
            # The second time, nothing is recorded.
            for end in (lambda: one.nthbyte("detach").ok(), attached.communicate):
                one.say()
                while one.line() != "started":
                    pass
                end()
            assert len(list(tmp_path.glob(f"{output}.*.nthb"))) == count
        one.end("end\n").ok()
