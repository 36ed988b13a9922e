"""What only a Linux for ARM64 of its own shows. Its kernel is that of `make interpreters TREES=arm64-kernel`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from emulated.machine import EMULATOR, KERNEL, run_in_machine
from emulated.test_arm64 import CPYTHONS, SITE, TREE
from harness import IS_ALL

HELD = """
class Cache: pass
class Row:
    def __init__(self, number): self.text = "t" * 900 + str(number)
cache = Cache()
cache.rows = {number: Row(number) for number in range(20_000)}
"""


@pytest.mark.skipif(not IS_ALL, reason="each interpreter takes half a minute in it")
@pytest.mark.skipif(
    not KERNEL.exists() or not shutil.which(EMULATOR), reason="no machine, or no kernel for it"
)
def test_who_holds_what(tmp_path: Path) -> None:
    """The child process that looks, which `qemu-aarch64` refuses."""
    each = "$python -m nthbyte run -q --holders --every 16KiB -o $python.nthb held.py; "
    each += (
        "/site/nthbyte/bin/nthbyte holders --json $python.nthb >$python.json; tr -d '\\n' <$python.json; echo"
    )
    script = f"for python in {' '.join([*CPYTHONS, 'pypy3'])}; do {each}; done"
    lines = run_in_machine(TREE, SITE, {"held.py": HELD}, script, tmp_path)
    found = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    assert len(found) == len(CPYTHONS) + 1
    for one in found:
        names = json.dumps(one)
        assert "cache.rows" in names, names[:2000]
