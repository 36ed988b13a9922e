"""Fixtures of the tests on CPython."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from harness import SITE, example


@pytest.fixture(scope="session")
def seams() -> Path:
    """The agent built with extra functions for tests."""
    built = example("libseams.so")
    # In the repository, where each interpreter sees it. Replaced, not overwritten: a test in another process may have
    # the old one mapped.
    library = SITE.parent / "libseams.so"
    fresh = library.with_suffix(f".{os.getpid()}")
    shutil.copy2(built, fresh)
    return fresh.replace(library)
