"""The results of `make compatibility`, kept as JSON: a file for each suite, host and set of options."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness import REPOSITORY

STORE = REPOSITORY / "build" / "compatibility" / "results"
# All modules of each interpreter that was there, to know which have not been run.
_MODULES = STORE / "modules.json"


@dataclass(frozen=True)
class Record:
    """A suite's result, and what it is a result of."""

    host: str
    """The interpreter; for a package, `packages-` and the interpreter."""
    suites: list[str]
    """The modules that ran together, or the package."""
    options: list[str]
    """Of ``nthbyte run``."""
    date: str
    commit: str
    """The last commit that changed nthbyte itself."""
    result: dict[str, Any]
    """See comparison.Result; or a state with a reason."""
    versions: list[str] = field(default_factory=list)
    """Of what was installed beside a package."""


def path(host: str, suites: Sequence[str], options: Sequence[str]) -> Path:
    """Returns the file of a record."""
    name = suites[0] if len(suites) == 1 else f"{suites[0]}+{len(suites) - 1}"
    return STORE / _safe(f"{host}{''.join(options)}") / f"{_safe(name)}.json"


def save(record: Record) -> None:
    """Writes a record; it is there as a whole or not at all. Records that share a suite with it are removed."""
    file = path(record.host, record.suites, record.options)
    file.parent.mkdir(parents=True, exist_ok=True)
    for old in file.parent.glob("*.json"):
        if set(json.loads(old.read_text())["suites"]) & set(record.suites):
            old.unlink(missing_ok=True)
    new = file.with_suffix(".new")
    new.write_text(json.dumps(asdict(record), indent=1, ensure_ascii=False) + "\n")
    new.replace(file)


def load_all() -> list[Record]:
    """Returns all records that there are."""
    return [Record(**json.loads(file.read_text())) for file in sorted(STORE.glob("*/*.json"))]


def modules() -> dict[str, list[str]]:
    """Returns the modules of each interpreter that was there in this run or an earlier one."""
    return dict(json.loads(_MODULES.read_text())) if _MODULES.exists() else {}


def save_modules(new: dict[str, list[str]]) -> None:
    """Keeps the modules of these interpreters."""
    STORE.mkdir(parents=True, exist_ok=True)
    _MODULES.write_text(json.dumps({**modules(), **new}, indent=1) + "\n")


def covered(options: Sequence[str]) -> set[tuple[str, str]]:
    """Returns the hosts and suites that have a result with these options."""
    return {(one.host, suite) for one in load_all() if one.options == list(options) for suite in one.suites}


def _safe(name: str) -> str:
    return re.sub(r"[^\w.+-]", "_", name)
