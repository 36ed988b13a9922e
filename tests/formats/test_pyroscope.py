"""``nthbyte ship`` to Pyroscope's own push API, and the check of pprof's own library.

``make test-collector`` builds the receiver first, from the module that Pyroscope publishes.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from formats.shipping import compare, ship
from harness import REPOSITORY

RECEIVER = REPOSITORY / "build" / "collector" / "pyroscope"

pytestmark = pytest.mark.skipif(not RECEIVER.exists(), reason="no receiver: make build/collector/pyroscope")


def test_pyroscope_takes_each_window(folder: Path, tmp_path: Path) -> None:
    with subprocess.Popen([RECEIVER], stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout
        try:
            to = f"--to=pyroscope=http://{receiver.stdout.readline().strip()}"
            done = ship(folder, to, queue=tmp_path / "queue")
        finally:
            receiver.terminate()
        windows: list[dict[str, Any]] = [json.loads(line) for line in receiver.stdout]
    assert (done.status, done.err) == (0, "")
    sums: dict[str, int] = {}
    for window in windows:
        assert window["Types"] == [
            "alloc_objects:count",
            "alloc_space:bytes",
            "inuse_objects:count",
            "inuse_space:bytes",
        ]
        labels = window["Labels"]
        assert (labels["__name__"], labels["service_name"], labels["env"]) == ("memory", "web", "prod")
        assert 0 < window["Duration"] <= 1.1e9
        for name, values in window["Sums"].items():
            name = name.split(".")[0]
            sums[name] = sums.get(name, 0) + values[1]
    assert len({window["ID"] for window in windows}) == len(windows) >= 3
    compare(sums, folder)
