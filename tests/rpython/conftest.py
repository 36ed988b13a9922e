"""The translated programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

BUILT = Path(__file__).resolve().parents[2] / "build" / "rpython"


@pytest.fixture(scope="session")
def translated() -> Callable[[str], Path]:
    """Returns a function that finds the translated program of this name."""

    def find(name: str) -> Path:
        if not (BUILT / name).exists():
            pytest.skip(f"{name} is not translated: make build/rpython/ready, with a Python 2.7")
        return BUILT / name

    return find
