"""The known reasons for differences: reasons.toml."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from pathlib import Path

import tomllib

TABLE = Path(__file__).with_name("reasons.toml")


@dataclass(frozen=True)
class Reason:
    """Why some tests have another outcome under nthbyte."""

    host: str
    """A pattern of hosts, as in fnmatch."""
    suite: str
    """A pattern of suites."""
    test: str
    """A pattern of tests."""
    because: str


def table() -> list[Reason]:
    """Reads reasons.toml."""
    return [Reason(**entry) for entry in tomllib.loads(TABLE.read_text()).get("reason", [])]


def known(reasons: list[Reason], host: str, suite: str, test: str) -> str | None:
    """Returns why this test differs; None if nobody knows."""
    for one in reasons:
        patterns = ((host, one.host), (suite, one.suite), (test, one.test))
        # Names of tests have brackets, which fnmatch reads as sets.
        if all(fnmatch.fnmatchcase(name, pattern.replace("[", "[[]")) for name, pattern in patterns):
            return one.because
    return None
