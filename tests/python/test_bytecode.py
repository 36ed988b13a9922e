"""The wheel has the bytecode of its modules, so that no start compiles them."""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

import pytest

from harness import REPOSITORY, Done, run


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The wheel as an installer leaves it that does not compile."""
    (wheel,) = (REPOSITORY / "build" / "wheels").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    return tmp_path / "site"


def nthbyte(site: Path) -> Done:
    """Runs the interpreter that has built the wheel, which cannot write bytecode."""
    words = [sys.executable, "-v", "-m", "nthbyte", "run", "-q", "-o", "out.nthb", "-c", "print('run')"]
    return run(words, site.parent, environment={"PYTHONPATH": str(site), "PYTHONPYCACHEPREFIX": ""}).ok()


def test_no_module_is_compiled(site: Path) -> None:
    done = nthbyte(site)
    files = re.findall(rf"^# code object from '?({site}/nthbyte/[^']*)'?$", done.err, re.M)
    assert len(files) >= 5
    assert [file for file in files if not file.endswith(".pyc")] == []
    assert done.out == "run\n"


def test_an_edited_module_is_compiled(site: Path) -> None:
    module = site / "nthbyte" / "_run.py"
    module.write_text(module.read_text() + "\nprint('edited')\n")
    assert nthbyte(site).out == "edited\nrun\n"


def test_tracebacks_name_the_installed_file(site: Path) -> None:
    program = "import nthbyte._run; print(nthbyte._run.start.__code__.co_filename)"
    done = run([sys.executable, "-c", program], site.parent, environment={"PYTHONPATH": str(site)})
    assert done.ok().out.strip() == str(site / "nthbyte" / "_run.py")
