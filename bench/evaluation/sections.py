"""What the pages show between their marks: figures that are made of raw results."""

from __future__ import annotations

from collections.abc import Callable

from evaluation.results import Result

Found = dict[str, "Result | None"]
SECTIONS: dict[str, Callable[[Found], "list[str] | None"]] = {}
