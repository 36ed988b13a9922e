"""The bytecode in a wheel: the same each time, or no two builds of a release are the same."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("command", [sys.executable, "pypy3"])
def test_bytecode_is_the_same_each_time(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("hatchling")
    path = shutil.which(command)
    if path is None:
        pytest.skip(f"{command} is not installed")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec and spec.loader
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    # A seed of the developer, and none.
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    first = build.compile_all(ROOT / "python" / "nthbyte", [[path]])
    monkeypatch.delenv("PYTHONHASHSEED")
    assert first
    for _ in range(2):
        assert build.compile_all(ROOT / "python" / "nthbyte", [[path]]) == first
