"""Fixtures of the tests on CPython."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from harness import REPOSITORY, SITE


@pytest.fixture(scope="session")
def seams() -> Path:
    """The agent built with extra functions for tests."""
    words = [
        "cargo",
        "build",
        "--locked",
        "-p",
        "nthbyte-cpython",
        "--example",
        "seams",
        "--features",
        "test-seams",
    ]
    subprocess.run(words, cwd=REPOSITORY, check=True, capture_output=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR") or REPOSITORY / "target")
    # In the repository, where each interpreter sees it. Replaced, not overwritten: a test in another process may have
    # the old one mapped.
    library = SITE.parent / "libseams.so"
    fresh = library.with_suffix(f".{os.getpid()}")
    shutil.copy2(target / "debug" / "examples" / "libseams.so", fresh)
    return fresh.replace(library)
