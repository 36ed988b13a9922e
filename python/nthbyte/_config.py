"""What the agent is told of a session; for the type checker, nothing imports it when it runs."""

from __future__ import annotations

from typing import TypedDict


class Config(TypedDict):
    """One session, as the agent wants to be told of it."""

    output: str
    """Absolute path of the profile."""
    period: int
    """Mean distance between samples in bytes."""
    distances: str
    """``exponential``, ``fixed``, or ``every`` where each allocation is recorded."""
    seed: int | None
    """Seed of the distances; None takes one from the system."""
    cpu_hz: int | None
    """Time samples a second; None for none."""
    native: bool
    """Whether memory and frames of native code are recorded too."""
    huge_pages: str
    """``thp``, ``hugetlb`` or ``off``."""
    command: list[str]
    """The program and its arguments."""
    executable: str
    """Path of the interpreter."""
    interpreter: str
    """Name and version of the interpreter."""
    parent_pid: int | None
    """The profiled process that started this one, if there was one."""
