"""The raw results: a JSON file for each experiment, beside its plots.

Full measurements are kept in ``docs/measurements``, and pages are made of them. Quick ones go elsewhere, so that they
replace nothing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from evaluation.interpreters import ROOT

KEPT = ROOT / "docs" / "measurements"
QUICK = ROOT / "build" / "bench" / "quick"


@dataclass
class Result:
    """The result of one experiment."""

    experiment: str
    version: str
    """Of nthbyte: the commit that was measured."""
    date: str
    seconds: float
    machine: dict[str, Any]
    load: list[float]
    """How many processes ran or waited before and after, this experiment's own included."""
    raw: dict[str, Any] | None
    """None if it could not be measured."""
    notes: list[str] = field(default_factory=list)

    def save(self, folder: Path) -> None:
        """Writes the file, a line for each small value."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.experiment}.json").write_text(_text(asdict(self)) + "\n")


def load(name: str, folder: Path = KEPT) -> Result | None:
    """Reads the result of an experiment, if there is one."""
    path = folder / f"{name}.json"
    return Result(**json.loads(path.read_text())) if path.exists() else None


def _text(value: Any, indent: str = "") -> str:
    """JSON whose short parts stand on one line each: small, and still readable in a diff."""
    line = json.dumps(_rounded(value), ensure_ascii=False)
    if len(line) <= 110 or not isinstance(value, (dict, list)):
        return line
    deeper = indent + " "
    if isinstance(value, dict):
        parts = [
            f"{json.dumps(key, ensure_ascii=False)}: {_text(each, deeper)}" for key, each in value.items()
        ]
        return "{\n" + ",\n".join(deeper + part for part in parts) + f"\n{indent}}}"
    return "[\n" + ",\n".join(deeper + _text(each, deeper) for each in value) + f"\n{indent}]"


def _rounded(value: Any) -> Any:
    """Numbers with six digits: more than a measurement has."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return value
