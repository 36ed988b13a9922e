"""A whole machine for ARM64, with a Linux of its own, by `qemu-system-aarch64`: what `qemu-aarch64` cannot show.

All its files lie in its memory: the interpreters' tree, nthbyte, and a folder with a script, whose output it returns.
"""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import BinaryIO

from harness import REPOSITORY

KERNEL = REPOSITORY / "build" / "emulated" / "kernel" / "vmlinuz"
EMULATOR = "qemu-system-aarch64"
# Of the tree: what nothing needs, or is made anew.
LEFT_OUT = {"usr/share", "usr/include", "var", "boot", "dev", "proc", "sys", "debootstrap", "work", "site"}
INIT = """#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
export PATH=/usr/bin:/usr/sbin HOME=/root PYTHONPATH=/site COLUMNS=120
cd /work
echo BEGIN
sh ./script.sh 2>&1
echo END $?
echo o >/proc/sysrq-trigger
sleep 100
"""


def run_in_machine(tree: Path, site: Path, files: dict[str, str], script: str, folder: Path) -> str:
    """Runs a script beside some files. Returns its output; raises an error if it fails."""
    memory = folder / "machine.cpio"
    with memory.open("wb") as out:
        archive = _Archive(out)
        for name in ("dev", "proc", "sys", "var", "work", "site"):
            archive.add(name, stat.S_IFDIR | 0o755)
        archive.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
        archive.add_folder(tree, "", LEFT_OUT)
        archive.add_folder(site, "site/", set())
        for name, text in {**files, "script.sh": f"set -e\n{script}"}.items():
            archive.add(f"work/{name}", stat.S_IFREG | 0o644, text.encode())
        archive.add("init", stat.S_IFREG | 0o755, INIT.encode())
        archive.add("TRAILER!!!", 0)
    # Its own faster way to sign return addresses: the usual one is most of the time.
    words = [EMULATOR, "-M", "virt", "-cpu", "max,pauth-impdef=on", "-m", "2500", "-nographic", "-no-reboot"]
    words += ["-nic", "none", "-kernel", str(KERNEL), "-initrd", str(memory)]
    words += ["-append", "console=ttyAMA0 rdinit=/init panic=-1 quiet"]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1800)
    finally:
        memory.unlink()
    shown = done.stdout.replace("\r", "")
    _, begun, rest = shown.partition("BEGIN\n")
    output, ended, status = rest.partition("END ")
    assert begun and ended and status.startswith("0\n"), f"{shown}\n{done.stderr}"
    return output


class _Archive:
    """Writes files in the format `newc` of cpio, which the kernel unpacks."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._count = 0

    def add(self, name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
        """Adds a file, a folder, a link or a device."""
        self._count += 1
        path = name.encode() + b"\0"
        numbers = (self._count, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(path), 0)
        head = b"070701" + b"".join(b"%08X" % number for number in numbers) + path
        for part in (head, data):
            self._out.write(part + b"\0" * (-len(part) % 4))

    def add_folder(self, root: Path, prefix: str, left_out: set[str]) -> None:
        """Adds what is in a folder, but for these of its folders."""
        for folder, folders, files in os.walk(root):
            inside = Path(folder).relative_to(root)
            folders[:] = [name for name in folders if str(inside / name) not in left_out]
            for name in [*folders, *files]:
                path = Path(folder, name)
                mode = path.lstat().st_mode
                if stat.S_ISLNK(mode):
                    self.add(f"{prefix}{inside / name}", mode, os.readlink(path).encode())
                elif stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                    self.add(
                        f"{prefix}{inside / name}", mode, path.read_bytes() if stat.S_ISREG(mode) else b""
                    )
