"""No code takes the size of the system's pages for a constant: on ARM64 some have 16 or 64 KiB."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# A number that is the size of most systems' pages, or one less, where addresses and sizes are rounded to it.
_ROUNDED = re.compile(
    r"(?:[%&/]\s*!?\(?|next_multiple_of\(|is_multiple_of\(|\balign\()\s*(?:4096|4095|0x1000|0xfff|4 << 10)(?![\w.])"
)
_COMMENT = re.compile(r"\s*//")
# The tests of a Rust file, which are its last item.
_TESTS = re.compile(r"^#\[cfg\(test\)\]\n", re.MULTILINE)


def check(root: Path, rules: dict[str, Any]) -> Iterator[str]:
    """Yields a line for each violation."""
    allowed = dict(rules["pages"]["constant"])
    for path in sorted((root / "crates").glob("*/src/**/*.rs")):
        name = str(path.relative_to(root))
        if path.stem == "tests":
            continue
        lines = _TESTS.split(path.read_text())[0].splitlines()
        found = [number for number, line in enumerate(lines, 1) if _ROUNDED.search(_without_comment(line))]
        if found and allowed.pop(name, None) is None:
            yield f"{name}:{found[0]}: a page need not have 4096 bytes: ask nthbyte_host::memory::page_size()"
    for name in allowed:
        yield f"rules.toml: {name} has no size of a page"


def _without_comment(line: str) -> str:
    return "" if _COMMENT.match(line) else line
