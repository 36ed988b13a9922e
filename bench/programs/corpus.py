"""Real input from installed packages: pyperformance's documents and the sources of the standard library."""

from __future__ import annotations

import importlib.util
import os
import sysconfig
from pathlib import Path


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
