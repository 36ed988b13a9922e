"""A hook of mkdocs: pages of the site that are not in docs/, and links to files that are on no page."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = ["ARCHITECTURE.md", "CHANGELOG.md"]
_LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages from outside docs/, the stylesheet and a script."""
    for name in OUTSIDE:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    for name in ("site.css", "iframe-worker.js"):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / "site" / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links that are right in the tree into links that are right on the site."""
    name = page.file.src_uri
    in_tree = name if name in OUTSIDE else f"docs/{name}"

    def on_site(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        if ":" in target:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(in_tree), target))
        # The README's place is taken by the start page.
        inside = "README.md" if path == "README.md" else path.removeprefix("docs/")
        if inside not in OUTSIDE and not path.startswith("docs/") and path != "README.md":
            return match[0]
        return before + posixpath.relpath(inside, posixpath.dirname(name) or ".") + after

    return _LINK.sub(on_site, markdown)
