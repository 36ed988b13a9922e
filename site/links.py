"""Checks the links of the Markdown files in the tree, and that the built site loads nothing from elsewhere.

mkdocs checks the links of the site itself, but not the README's, nor whether an anchor is right on GitHub too.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ["bench", "crates", "docs", "fuzz", "python", "tests"]
# What others wrote, or what tools make.
LEFT_OUT = {"node_modules", "build", "target", "corpus"}
_FENCE = re.compile(r"^(```+).*?^\1", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
# The attributes that make a browser load something.
_LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
_NO_REQUEST = {"canonical", "next", "prev", "license"}


def documents() -> list[Path]:
    """Returns the Markdown files of the tree."""
    inside = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md")]
    ours = [path for path in inside if not LEFT_OUT & set(path.relative_to(ROOT).parts)]
    return sorted([*ROOT.glob("*.md"), *ours])


def wrong_links(document: Path) -> Iterator[str]:
    """Yields a line for each link to a file or a heading that is not there."""
    text = _without_code(document)
    for match in _LINK.finditer(text):
        target, _, anchor = match[1].partition("#")
        if ":" in target:
            continue
        path = (document.parent / target).resolve() if target else document
        if not path.exists():
            yield f"there is no {target}"
        elif anchor and path.suffix == ".md" and anchor not in anchors(path):
            yield f"{target or 'this page'} has no heading #{anchor}"


@functools.cache
def anchors(document: Path) -> set[str]:
    """Returns the anchors of a file's headings, as GitHub makes them."""
    found: set[str] = set()
    for title in _HEADING.findall(_without_code(document, keeps_spans=True)):
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", title)
        base = re.sub(r"[^\w\- ]", "", plain.replace("`", "").strip().lower()).replace(" ", "-")
        number = 0
        while (anchor := f"{base}-{number}" if number else base) in found:
            number += 1
        found.add(anchor)
    return found


def _without_code(document: Path, keeps_spans: bool = False) -> str:
    text = _FENCE.sub("", document.read_text())
    return text if keeps_spans else re.sub(r"(?<!`)`[^`\n]+`(?!`)", "", text)


class _Loads(HTMLParser):
    """Collects the addresses that a page loads from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        address = values.get(_LOADS.get(tag, "")) or ""
        if re.match(r"(https?:)?//", address) and values.get("rel") not in _NO_REQUEST:
            self.found.append(address)


def requests(site: Path) -> Iterator[str]:
    """Yields a line for each page of the built site that loads something from elsewhere."""
    for page in sorted(site.rglob("*.html")):
        reader = _Loads()
        reader.feed(page.read_text())
        yield from (f"{page.relative_to(ROOT)}: loads {address}" for address in reader.found)


def main() -> int:
    """Returns the exit status."""
    found = documents()
    wrong = [f"{path.relative_to(ROOT)}: {one}" for path in found for one in wrong_links(path)]
    wrong += requests(ROOT / "build" / "docs")
    print(
        "\n".join(wrong) or f"the links of {len(found)} files are right",
        file=sys.stderr if wrong else sys.stdout,
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
