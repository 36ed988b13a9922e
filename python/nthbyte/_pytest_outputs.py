"""What ``pytest --nthbyte`` writes for other programs: properties in JUnit's XML, and annotations for GitHub."""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_FIGURES = ("peak", "allocated", "left")


def add_properties(path: str, rows: list[dict[str, Any]], prefix: str | None) -> None:
    """Adds the figures of tests to the file that ``--junit-xml`` has written: bytes, as properties of each test."""
    from xml.etree import ElementTree

    by_address = {_address(row["name"], prefix): row for row in rows if "scope" not in row}
    tree = ElementTree.parse(path)
    for case in tree.iter("testcase"):
        row = by_address.get((case.get("classname", ""), case.get("name", "")))
        if row is None:
            continue
        properties = case.find("properties")
        if properties is None:
            properties = ElementTree.Element("properties")
            case.insert(0, properties)
        for figure in _FIGURES:
            if figure in row:
                for end, part in (("", "estimate"), (".low", "low"), (".high", "high")):
                    value = str(round(row[figure][part]))
                    ElementTree.SubElement(properties, "property", name=f"nthbyte.{figure}{end}", value=value)
    tree.write(path, encoding="utf-8", xml_declaration=True)


def _address(nodeid: str, prefix: str | None) -> tuple[str, str]:
    """The class and the name of a test, as pytest writes them into the XML."""
    path, bracket, parameters = nodeid.partition("[")
    names = path.split("::")
    names[0] = re.sub(r"\.py$", "", names[0].replace("/", "."))
    names[-1] += bracket + parameters
    if prefix:
        names.insert(0, prefix)
    return ".".join(names[:-1]), names[-1]


def annotation(file: str, line: int | None, title: str, text: str) -> str:
    """A line that GitHub shows beside the test in a pull request.

    Its words of workflow commands: https://docs.github.com/actions/reference/workflow-commands-for-github-actions
    """
    root = os.environ.get("GITHUB_WORKSPACE") or os.getcwd()
    where = {"file": os.path.relpath(file, root), "line": "" if line is None else str(line), "title": title}
    words = ",".join(f"{name}={_escaped(value, _IN_PROPERTY)}" for name, value in where.items() if value)
    return f"::error {words}::{_escaped(text, _IN_TEXT)}"


_IN_TEXT: Mapping[str, str] = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_IN_PROPERTY: Mapping[str, str] = {**_IN_TEXT, ":": "%3A", ",": "%2C"}


def _escaped(text: str, signs: Mapping[str, str]) -> str:
    return "".join(signs.get(sign, sign) for sign in text)
