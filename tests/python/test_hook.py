"""``nthbyte.pth``: what every interpreter of an environment with nthbyte runs at its start."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import harness

# Prints the modules of nthbyte that are there once `site` has read the folder's .pth files.
PROGRAM = """
import site, sys
sys.path.clear(), sys.path.extend({path!r})
site.addsitedir({folder!r})
print(sorted(name for name in sys.modules if name.startswith("nthbyte")))
"""


def start(
    interpreter: harness.Interpreter, folder: Path, variables: dict[str, str], *flags: str
) -> harness.Done:
    """Starts an interpreter with ``folder`` as its site-packages."""
    path = interpreter.python("-I", "-c", "import sys; print(sys.path)", folder=folder).ok().out
    program = PROGRAM.format(path=eval(path), folder=str(folder))
    return interpreter.python(
        *flags, "-c", program, folder=folder, environment=variables | {"PYTHONPATH": ""}
    )


def test_no_module_is_imported_without_a_variable(interpreter: harness.Interpreter) -> None:
    done = start(interpreter, harness.SITE, {}).ok()
    assert done.out == "[]\n"
    assert done.err == ""


def test_a_variable_leads_to_the_hook(interpreter: harness.Interpreter) -> None:
    done = start(interpreter, harness.SITE, {"NTHBYTE": "nothing of ours"}).ok()
    assert "nthbyte._hook" in done.out
    # One line: see test_environment.py.
    assert done.err.count("\n") == 1


@pytest.mark.launcher
@pytest.mark.parametrize("left", ["nothing", "an empty folder", "a broken module"])
def test_the_rest_of_a_removed_package_is_silent(
    interpreter: harness.Interpreter, tmp_path: Path, left: str
) -> None:
    shutil.copy(harness.SITE / "nthbyte.pth", tmp_path)
    if left != "nothing":
        (tmp_path / "nthbyte").mkdir()
    if left == "a broken module":
        (tmp_path / "nthbyte" / "_hook.py").write_text("from nthbyte import nowhere\n")
    done = start(interpreter, tmp_path, {"NTHBYTE": "ready"}).ok()
    assert done.err == ""


@pytest.mark.each
def test_each_python_runs_the_hook_once(interpreter: harness.Interpreter, tmp_path: Path) -> None:
    """Also one that warns of lines in ``.pth`` files, or runs ``.start`` files besides (PEP 829)."""
    for file in harness.SITE.glob("nthbyte.*"):
        shutil.copy(file, tmp_path)
    (tmp_path / "nthbyte").mkdir()
    (tmp_path / "nthbyte" / "_hook.py").write_text("def run(): print('the hook')\n")
    done = start(interpreter, tmp_path, {"NTHBYTE": "ready"}, "-W", "error", "-X", "dev").ok()
    assert done.out.count("the hook") == 1
    assert done.err == ""


def test_the_line_is_one_that_site_executes() -> None:
    text = (harness.SITE / "nthbyte.pth").read_text()
    assert text.startswith("import ") and text.count("\n") == 1


@pytest.mark.launcher
def test_without_a_variable_it_makes_no_system_call(cpython: harness.Interpreter, tmp_path: Path) -> None:
    """But those by which ``site`` reads a file of this kind, whatever is in it."""
    if shutil.which("strace") is None or cpython.tree is not None:
        pytest.skip("strace is not installed, or not there")
    path = cpython.python("-I", "-c", "import sys; print(sys.path)", folder=tmp_path).ok().out
    counts = []
    for name, line in (("none", "\n"), ("ours", (harness.SITE / "nthbyte.pth").read_text())):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "nthbyte.pth").write_text(line)
        program = PROGRAM.format(path=eval(path), folder=str(folder))
        words = ["strace", "-f", "-o", str(tmp_path / name) + ".trace", cpython.path, "-c", program]
        assert harness.run(words, tmp_path, environment={"PYTHONPATH": ""}).ok().out == "[]\n"
        trace = (tmp_path / f"{name}.trace").read_text()
        calls = trace[trace.index("nthbyte.pth") :].splitlines()
        # What the C library takes from the system depends on where its blocks lie.
        counts.append(
            len([call for call in calls if not any(of in call for of in ("brk(", "mmap(", "munmap("))])
        )
    assert counts[0] == counts[1]
