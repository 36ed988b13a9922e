"""Checks the project: `make check-structure`."""

from __future__ import annotations

import sys
from pathlib import Path

import tomllib

from structure import crates, files, names, pages, python, words

HERE = Path(__file__).resolve().parent


def violations(root: Path) -> list[str]:
    """Returns a line for each violation of the rules."""
    rules = tomllib.loads((HERE / "rules.toml").read_text())
    forbidden = tomllib.loads((HERE / "words.toml").read_text())
    found = [line for room in (crates, names, python, files, pages) for line in room.check(root, rules)]
    return [*found, *words.check(root, forbidden)]


if __name__ == "__main__":
    wrong = violations(HERE.parents[1])
    print("\n".join(wrong) or "the structure is as stated", file=sys.stderr if wrong else sys.stdout)
    sys.exit(1 if wrong else 0)
