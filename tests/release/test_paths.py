"""The paths of the machine that builds a wheel are not in it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# The standard library's code is compiled into it, with the names of its files.
PROGRAM = """
fn main() {
    let map: std::collections::BTreeMap<_, _> = std::env::args().enumerate().collect();
    println!("{:?}", map.range(1..).next());
}
"""


def test_the_compilers_own_sources_have_the_name_that_they_have_everywhere(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec and spec.loader
    build = importlib.util.module_from_spec(spec)
    sys.modules["hatch_build"] = build
    spec.loader.exec_module(build)
    (tmp_path / "program.rs").write_text(PROGRAM)
    options = build._without_paths(tmp_path)
    subprocess.run(["rustc", "-O", *options, "program.rs"], cwd=tmp_path, check=True)
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], check=True, capture_output=True).stdout.strip()
    program = (tmp_path / "program").read_bytes()
    assert b"/rustc/" in program and sysroot + b"/lib/rustlib/src" not in program
