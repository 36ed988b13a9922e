"""Files are short, and their names say what they contain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Generated or downloaded files.
_NOT_OURS = {"target", "build", "node_modules", "__pycache__", "corpus", "artifacts"}


def sources(root: Path, folders: list[str], suffixes: list[str], left_out: list[str]) -> Iterator[Path]:
    """Yields the project's own files with one of the suffixes, in order."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            parts = path.relative_to(root).parts
            hidden = any(part.startswith(".") or part in _NOT_OURS for part in parts)
            ours = not any(path.is_relative_to(root / other) for other in left_out)
            if path.suffix in suffixes and path.is_file() and ours and not hidden:
                yield path


def check(root: Path, rules: dict[str, Any]) -> Iterator[str]:
    """Yields a line for each violation."""
    own = rules["files"]
    longer = dict(own.get("longer", {}))
    for path in sources(root, own["folders"], own["suffixes"], own["left_out"]):
        name = str(path.relative_to(root))
        lines = path.read_text().count("\n")
        reason = longer.pop(name, None)
        if lines > own["longest"] and not reason:
            yield f"{name}: {lines} lines, more than {own['longest']}, and rules.toml has no reason for it"
        elif lines <= own["longest"] and reason is not None:
            yield f"rules.toml: {name} has {lines} lines and needs no exception"
        for part in {path.stem, *path.relative_to(root).parts[:-1]} & set(own["forbidden_names"]):
            yield f"{name}: `{part}` says nothing of what is in it"
    for name in longer:
        yield f"rules.toml: there is no {name}"
