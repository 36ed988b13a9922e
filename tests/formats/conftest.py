"""What the tests of `nthbyte ship` share: a recording, and a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from formats.shipping import Receiver
from harness import cpythons

PROGRAM = """
import time, nthbyte
kept = []
def stays():
    kept.append([bytearray(20_000) for _ in range(50)])
def passes():
    return [bytearray(20_000) for _ in range(50)]
with nthbyte.label(endpoint="/a"):
    for step in range(30):
        stays()
        passes()
        time.sleep(0.1)
SECRET = {"a key that nobody may see": [bytearray(20_000) for _ in range(50)]}
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ship")
    (folder / "app.py").write_text(PROGRAM)
    words = [
        "run",
        "-q",
        "--no-native",
        "--holders",
        "--every=4KiB",
        "--seed=1",
        "--tags=service:web,env:prod",
    ]
    (folder / "profiles").mkdir()
    cpythons()[-1].nthbyte(*words, "-oprofiles/app.nthb", "app.py", folder=folder).ok()
    return folder
