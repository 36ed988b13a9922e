"""The type of a session's configuration. Only the type checker reads this file; no code imports it."""

from __future__ import annotations

from typing import TypedDict


class Config(TypedDict):
    """One session's configuration, as the agent reads it (``crates/session/src/config.rs``)."""

    output: str
    """Absolute path of the profile."""
    claimed: bool
    """Whether this process has claimed that file."""
    period: int
    """Mean distance between samples in bytes."""
    auto: bool
    """Whether the distance follows the program from there on."""
    distances: str
    """``exponential``, ``fixed``, or ``every`` if each allocation is recorded."""
    seed: int | None
    """Seed of the distances; None for a random one."""
    cpu_hz: int | None
    """Time samples per second; None for none."""
    native: bool | None
    """Whether native memory is recorded; None if it is where that is possible. The agent gets the result."""
    native_problem: str | None
    """Why native memory is not recorded, although it should be."""
    native_frames: bool
    """Whether samples of native memory and time samples have the frames of native code."""
    whole_mappings: bool
    """Whether mappings and large blocks count as a whole, and not with their touched part: for limits of tests."""
    huge_pages: str
    """``thp``, ``hugetlb`` or ``off``."""
    holders: str
    """Whether snapshots of who holds what are taken: ``auto``, ``always`` or ``never``."""
    snapshot_every: float | None
    """The seconds between two of them; None if there are none at a fixed interval."""
    snapshot_signal: int | None
    """The signal at which one is taken, too. The agent does not read it."""
    no_names: bool
    """Whether they leave out the keys of dictionaries."""
    keep: dict[str, int] | None
    """How much of the profile is kept: ``nanos``, ``bytes`` or both; None for all."""
    command: list[str]
    """The program and its arguments."""
    executable: str
    """Path of the interpreter."""
    interpreter: str
    """Name and version of the interpreter."""
    parent_pid: int | None
    """The profiled process that started this one, if any."""
    memory_before: int | None
    """The bytes that were in memory when the session began in a process that ran already."""
    tags: dict[str, str]
    """The labels of the process."""
    line_at_signal: str | None
    """What the agent prints on stderr if a signal ends the process; with the line end."""
    run: int
    """A number that all processes of a run have in common, and no other run of the same program has."""
