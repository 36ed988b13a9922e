"""What the measurements ran on."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any


def describe() -> dict[str, Any]:
    """The machine, its system, and how much else it does at the moment."""
    memory = next(
        (
            int(line.split()[1])
            for line in Path("/proc/meminfo").read_text().splitlines()
            if "MemTotal" in line
        ),
        0,
    )
    return {
        "processor": _processor(),
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / (1 << 20)),
        "kernel": platform.release().split("-")[0],
        "system": _release(),
        "libc": " ".join(platform.libc_ver()),
        "huge_pages": _huge_pages(),
        "rustc": _first_line("rustc", "--version"),
        "cc": _first_line("cc", "--version"),
    }


def load() -> float:
    """How many processes ran or waited for a processor, over the last minute."""
    return round(os.getloadavg()[0], 1)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _release() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.system()


def _huge_pages() -> str:
    try:
        text = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        return "none"
    return text.split("[", 1)[1].split("]", 1)[0]


def _first_line(*words: str) -> str:
    if not shutil.which(words[0]):
        return "none"
    done = subprocess.run(words, capture_output=True, text=True)
    return done.stdout.splitlines()[0] if done.stdout else "none"
