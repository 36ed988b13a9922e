"""Real input from installed packages: pyperformance's documents and programs, and the sources of the standard library."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
import time
import types
from pathlib import Path
from typing import Any


def pyperformance(benchmark: str) -> Any:
    """Returns the module of one of pyperformance's benchmarks. A small module takes the place of pyperf, which would start
    processes and time them."""
    pyperf = types.ModuleType("pyperf")
    vars(pyperf).update(perf_counter=time.perf_counter, python_implementation=lambda: sys.implementation.name)
    sys.modules["pyperf"] = pyperf
    path = pyperformance_data(benchmark).parent / "run_benchmark.py"
    spec = importlib.util.spec_from_file_location(f"bm_{benchmark}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pyperformance_data(benchmark: str) -> Path:
    """Returns the data folder of one of pyperformance's benchmarks, without importing it."""
    found = importlib.util.find_spec("pyperformance")
    if found is None or found.origin is None:
        raise SystemExit("pyperformance is missing: pip install -r bench/requirements.txt")
    return Path(found.origin).parent / "data-files" / "benchmarks" / f"bm_{benchmark}" / "data"


def standard_library(*names: str) -> list[str]:
    """Returns the source text of modules of the standard library."""
    folder = sysconfig.get_path("stdlib")
    return [
        Path(folder, *name.split("/")).read_text(encoding="utf-8")
        for name in names
        if os.path.exists(Path(folder, name))
    ]
