"""Limits of a process that a recording meets: its control groups', and its descriptors'."""

from __future__ import annotations

import os

from nthbyte._row import NO, PARTLY, UNKNOWN, YES, Row
from nthbyte._size import format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

CGROUPS = "/sys/fs/cgroup"

# What a recording needs at the least: of memory, its ring and the writer's tables in bytes; of threads, its writer.
_MEMORY = 16 << 20
_THREADS = 1

# The names of the files of version 2 and of version 1 of control groups: the limit, and the bytes in use.
_MEMORY_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
_THREAD_FILES = (("pids.max", "pids.current"),)

# Where there is no limit, version 1 has a number of nearly 2**63.
_UNLIMITED = 1 << 60


def cgroup_limits(process: str, root: str = CGROUPS) -> Row:
    """Says how much memory and how many threads the control groups leave to a process: ``self``, or its number."""
    what = "cgroup limits"
    try:
        with open(f"/proc/{process}/cgroup") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError as error:
        return Row(what, UNKNOWN, f"/proc/{process}/cgroup cannot be read ({error.strerror})")
    memory = _tightest(lines, "memory", root, _MEMORY_FILES)
    threads = _tightest(lines, "pids", root, _THREAD_FILES)
    said = []
    if memory is not None:
        said.append(
            f"memory {format_size(memory[0])}, {format_size(max(memory[0] - memory[1], 0))} of it left"
        )
    if threads is not None:
        said.append(f"{threads[0]} threads, {max(threads[0] - threads[1], 0)} of them left")
    if not said:
        return Row(what, YES, "none")
    state, way_out = YES, None
    if threads is not None and threads[0] - threads[1] < _THREADS:
        state, way_out = NO, "raise pids.max: a recording has a thread that writes the profile"
    elif memory is not None and memory[0] - memory[1] < _MEMORY:
        state = PARTLY
        way_out = f"raise the limit of memory: a recording may take {format_size(_MEMORY)}"
    return Row(what, state, "; ".join(said), way_out)


def _tightest(
    lines: list[list[str]], controller: str, root: str, files: tuple[tuple[str, str], ...]
) -> tuple[int, int] | None:
    """Returns the limit that leaves least, of the process's group and those above it, and its use."""
    found = [pair for folder in _folders(lines, controller, root) for pair in _limits(folder, files)]
    return min(found, key=lambda pair: pair[0] - pair[1], default=None)


def _folders(lines: list[list[str]], controller: str, root: str) -> Iterator[str]:
    for _, controllers, path in lines:
        # The only line of version 2 has no controllers; each line of version 1 has a folder.
        if controllers and controller not in controllers.split(","):
            continue
        tops = (
            [os.path.join(root, controllers or "")] if controllers else [root, os.path.join(root, "unified")]
        )
        for top in tops:
            # In a container the path may be one of the host, of which only the end, or nothing, is here.
            parts = [part for part in path.split("/") if part and part != ".."]
            for length in range(len(parts), -1, -1):
                yield os.path.join(top, *parts[:length])


def _limits(folder: str, files: tuple[tuple[str, str], ...]) -> Iterator[tuple[int, int]]:
    for limit, usage in files:
        try:
            with open(os.path.join(folder, limit)) as file:
                most = file.read().strip()
            with open(os.path.join(folder, usage)) as file:
                used = int(file.read())
            if most != "max" and int(most) < _UNLIMITED:
                yield int(most), used
        except (OSError, ValueError):
            # The root has no limits, and not every group has every controller.
            continue


def free_descriptors(process: str, needed: int | None) -> Row:
    """Says how many descriptors a process may still open. ``needed``: a recording's, if that is known."""
    what = "free descriptors"
    try:
        with open(f"/proc/{process}/limits") as file:
            line = next(line for line in file if line.startswith("Max open files"))
        limit = line[len("Max open files") :].split()[0]
        used = len(os.listdir(f"/proc/{process}/fd"))
    except (OSError, StopIteration) as error:
        reason = error.strerror if isinstance(error, OSError) else "no such line"
        return Row(
            what, UNKNOWN, f"the process's cannot be counted ({reason})", "ask as its user, or as root"
        )
    if process == "self":
        # One of them read the folder.
        used -= 1
    if limit == "unlimited":
        return Row(what, YES, "no limit")
    free = int(limit) - used
    if needed is not None and free < needed:
        return Row(
            what,
            NO,
            f"{free} of {limit} are free, and a recording needs {needed}",
            "raise the limit: ulimit -n 1024",
        )
    return Row(what, YES, f"{free} of {limit}")
