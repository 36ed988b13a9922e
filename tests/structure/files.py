"""Files are short, and their names say what they contain."""

from __future__ import annotations

import re
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


# A line that is blank, or only a comment of Rust, TypeScript, CSS, HTML, Python or a shell. An attribute is code.
_NOT_CODE = re.compile(r"\s*($|//|/\*|\*(?!\w)|<!--|#(?!!?\[))")
# The tests of a Rust file, which are its last item.
_TESTS = re.compile(r"^#\[cfg\(test\)\]\nmod \w+ \{", re.MULTILINE)


def lines_of_code(source: str) -> int:
    """Returns the number of lines of a file, without comments, blank lines and the tests in it."""
    return sum(not _NOT_CODE.match(line) for line in _TESTS.split(source)[0].splitlines())


def check(root: Path, rules: dict[str, Any]) -> Iterator[str]:
    """Yields a line for each violation."""
    own = rules["files"]
    longer = dict(own.get("longer", {}))
    for path in sources(root, own["folders"], own["suffixes"], own["left_out"]):
        name = str(path.relative_to(root))
        lines = lines_of_code(path.read_text())
        reason = longer.pop(name, None)
        if lines > own["longest"] and not reason:
            yield f"{name}: {lines} lines of code, more than {own['longest']}, and rules.toml has no reason for it"
        elif lines <= own["longest"] and reason is not None:
            yield f"rules.toml: {name} has {lines} lines of code and needs no exception"
        for part in {path.stem, *path.relative_to(root).parts[:-1]} & set(own["forbidden_names"]):
            yield f"{name}: `{part}` says nothing of what is in it"
    for name in longer:
        yield f"rules.toml: there is no {name}"
    yield from unnamed_tests(root)


def unnamed_tests(root: Path) -> Iterator[str]:
    """Yields a line for each file of tests that would not be compiled: the program beside it does not name it."""
    for program in sorted(root.glob("crates/*/tests/**/*.rs")):
        if program.stem in ("all", "main"):
            named = re.findall(r"^mod (\w+);", program.read_text(), re.MULTILINE)
            for file in sorted(program.parent.glob("*.rs")):
                if file != program and file.stem not in named:
                    yield f"{program.relative_to(root)}: `mod {file.stem};` is missing"
