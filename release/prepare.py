"""Prepares a release: the version where it stands, the changelog, a commit and a tag. Publishes nothing.

``make release VERSION=1.2.3`` runs this. Whoever pushes the tag starts the workflow that publishes
(``.github/workflows/release.yml``).
"""

from __future__ import annotations

import datetime
import re
import subprocess
import sys
from pathlib import Path

# Where the version stands, as a pattern whose second group is the version.
PLACES = {
    "pyproject.toml": r'(?m)^(version = ")([^"]+)(")',
    "python/nthbyte/_version.py": r'(__version__ = ")([^"]+)(")',
    "Cargo.toml": r'(?m)^(version = "|nthbyte-\w+ = \{ path = "crates/\w+", version = ")([^"]+)(")',
    "Cargo.lock": r'(name = "nthbyte-[\w-]+"\nversion = ")([^"]+)(")',
    "fuzz/Cargo.lock": r'(name = "nthbyte-(?!fuzz)[\w-]+"\nversion = ")([^"]+)(")',
    "release/conda/recipe.yaml": r'(?m)^(  version: ")([^"]+)(")',
    "docs/guide/recipes.md": r"(nthbyte-)(\d[\w.]*)(-py3-none)",
}
CHANGELOG = "CHANGELOG.md"
UNRELEASED = re.compile(r"^## Unreleased[^\n]*\n(.*?)(?=^## |\Z)", re.M | re.S)
VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")


class Refusal(Exception):
    """Why there is no release now, in one line."""


def main(arguments: list[str], root: Path) -> int:
    """Returns the exit status."""
    if len(arguments) != 1 or not VERSION.fullmatch(arguments[0]):
        print("nthbyte: name the version: make release VERSION=1.2.3 (or 1.2.3rc1)", file=sys.stderr)
        return 2
    version = arguments[0]
    try:
        prepare(version, root, datetime.date.today())
    except Refusal as refusal:
        print(f"nthbyte: {refusal}", file=sys.stderr)
        return 1
    print(
        f"nthbyte: {version} is committed and tagged here, and published nowhere. See it with: git show v{version}\n"
        f"Publish it with: git push origin HEAD v{version}\n"
        f"Or take it back: git tag -d v{version} && git reset --hard HEAD~"
    )
    return 0


def prepare(version: str, root: Path, today: datetime.date) -> None:
    """Writes the version and the changelog, commits and tags. Raises Refusal, and changes nothing, if it cannot be."""
    if _git(root, "status", "--porcelain"):
        raise Refusal("there are changes that are not committed: commit or stash them first")
    if _git(root, "tag", "--list", f"v{version}"):
        raise Refusal(f"the tag v{version} is there already: take a newer version")
    texts = {name: (root / name).read_text() for name in (*PLACES, CHANGELOG)}
    for name, pattern in PLACES.items():
        found = {match[2] for match in re.finditer(pattern, texts[name])}
        if len(found) != 1:
            raise Refusal(f"{name} has {len(found)} versions, not one: {', '.join(sorted(found))}")
        texts[name] = re.sub(pattern, rf"\g<1>{version}\g<3>", texts[name])
    texts[CHANGELOG] = released(texts[CHANGELOG], version, today)
    for name, text in texts.items():
        (root / name).write_text(text)
    _git(root, "commit", "--quiet", "--message", f"Version {version}", "--", *texts)
    _git(root, "tag", "--annotate", f"v{version}", "--message", f"Version {version}")


def released(changelog: str, version: str, today: datetime.date) -> str:
    """Returns the changelog with what was unreleased under the version, below an empty heading for what comes next."""
    match = UNRELEASED.search(changelog)
    if not match or not match[1].strip():
        raise Refusal(f"{CHANGELOG} has nothing under Unreleased: say what is new first")
    heading = f"## Unreleased\n\n## {version} - {today}\n"
    return changelog[: match.start()] + heading + match[1] + changelog[match.end() :]


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise Refusal(f"git {words[0]} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parent.parent))
