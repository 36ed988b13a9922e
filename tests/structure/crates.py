"""Crates depend on each other as stated in their manifests, and the folders and files of a crate have no cycle.

The compiler refuses a crate that the manifest does not name, so only the manifests are read.

In each folder, its files and subfolders refer to each other without a cycle. Cycles of files alone need a reason in
rules.toml. A module with children (`a.rs` beside `a/`, or `a/mod.rs`) belongs to its folder.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomllib

from structure.graphs import circles, cycles, reachable
from structure.rust import Reference, read_crate, references

_PREFIX = "nthbyte-"


def check(root: Path, rules: dict[str, Any]) -> Iterator[str]:
    """Yields a line for each violation."""
    direction = {name: set(below) for name, below in rules["crates"].items()}
    for cycle in cycles(direction):
        yield f"rules.toml: the stated direction is a circle: {' -> '.join(cycle)}"
    yield from _check_picture(root / "ARCHITECTURE.md", direction)
    stated = rules.get("circles", {})
    reasons = {(one["crate"], tuple(one["files"])): one["reason"] for one in stated.get("stay", ())}
    there = {path.parent.name: path.parent for path in sorted(root.glob("crates/*/Cargo.toml"))}
    for name in sorted(direction.keys() - there.keys()):
        yield f"rules.toml: there is no crate `{name}`"
    for name, folder in there.items():
        if name not in direction:
            yield f"crates/{name}: rules.toml does not say what it may depend on"
            continue
        allowed = reachable(direction, name)
        manifest = tomllib.loads((folder / "Cargo.toml").read_text())
        for dependency in sorted(_dependencies(manifest) - allowed - {name}):
            yield f"crates/{name}/Cargo.toml: `{name}` may not depend on `{dependency}`"
        for crate_root in (folder / "src" / "lib.rs", folder / "src" / "main.rs"):
            if not crate_root.exists():
                continue
            found, facades = _read_source(crate_root)
            yield from folder_cycles(root, crate_root.parent, found, facades)
            for files in file_circles(crate_root.parent, found):
                if not reasons.pop((name, tuple(files)), None):
                    yield f"crates/{name}: a circle of files, without a reason in rules.toml: {', '.join(files)}"
    for name, files in reasons:
        yield f"rules.toml: there is no such circle in crates/{name}: {', '.join(files)}"


def _dependencies(manifest: dict[str, Any]) -> set[str]:
    """Returns the crates of this workspace that a manifest names, for any target and purpose."""
    kinds = ("dependencies", "dev-dependencies", "build-dependencies")
    tables = [manifest, *manifest.get("target", {}).values()]
    named = [name for table in tables for kind in kinds for name in table.get(kind, {})]
    renamed = [
        entry["package"]
        for table in tables
        for kind in kinds
        for entry in table.get(kind, {}).values()
        if isinstance(entry, dict) and "package" in entry
    ]
    return {name.removeprefix(_PREFIX) for name in named + renamed if name.startswith(_PREFIX)}


def _read_source(crate_root: Path) -> tuple[list[Reference], set[Path]]:
    module = read_crate(crate_root)
    facades = {
        one.file for one in module.all() if one.children and one.file.stem not in ("mod", "lib", "main")
    }
    return references(module), facades


def file_circles(source: Path, found: list[Reference]) -> list[list[str]]:
    """Returns the files that all refer to each other, by way of others or not, as paths below the crate's source."""
    graph: dict[str, set[str]] = defaultdict(set)
    for reference in found:
        one, other = (
            str(file.relative_to(source)) if file.is_relative_to(source) else str(file)
            for file in (reference.source, reference.target)
        )
        graph[one].add(other)
    return circles(graph)


def folder_cycles(root: Path, source: Path, found: list[Reference], facades: set[Path]) -> Iterator[str]:
    """Yields the cycles between the files and subfolders of each folder. ``facades`` are files that have a folder."""
    # For each folder: the references between its files and subfolders, and their places.
    graphs: dict[Path, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    places: dict[tuple[Path, str, str], Reference] = {}
    for reference in found:
        one, other = (_parts(source, file, facades) for file in (reference.source, reference.target))
        shared = next(
            at for at in range(len(one)) if at == len(other) - 1 or one[at] != other[at] or at == len(one) - 1
        )
        if one[shared] == other[shared]:
            continue
        folder = source.joinpath(*(part.rstrip("/") for part in one[:shared]))
        graphs[folder][one[shared]].add(other[shared])
        places.setdefault((folder, one[shared], other[shared]), reference)
    for folder, graph in graphs.items():
        for cycle in cycles(graph):
            if any(name.endswith("/") for name in cycle):
                steps = [places[folder, one, other] for one, other in zip(cycle, cycle[1:])]
                where = ", ".join(
                    f"{step.source.relative_to(root)}:{step.line} -> {step.target.relative_to(root)}"
                    for step in steps
                )
                yield f"{folder.relative_to(root)}: a cycle {' -> '.join(cycle)} ({where})"


def _parts(source: Path, file: Path, facades: set[Path]) -> list[str]:
    """Returns the folders that a file lies in, each with a slash, and its name: `["hook/", "engine/", "engine.rs"]`."""
    if not file.is_relative_to(source):
        return [str(file)]
    *folders, name = file.relative_to(source).parts
    if file in facades:
        folders.append(file.stem)
    return [f"{folder}/" for folder in folders] + [name]


def _check_picture(path: Path, direction: dict[str, set[str]]) -> Iterator[str]:
    """The chains in the document, `a ← b ← c, d`, say what the table says."""
    shown: set[tuple[str, str]] = set()
    for chain in re.findall(r"`([-\w, ]+(?:←[-\w, ]+)+)`", path.read_text()):
        parts = [[name.strip() for name in part.split(",")] for part in chain.split("←")]
        for below, above in zip(parts, parts[1:], strict=False):
            shown |= {(upper, lower) for upper in above for lower in below}
    stated = {(upper, lower) for upper, those in direction.items() for lower in those}
    for upper, lower in sorted(stated - shown):
        yield f"{path.name}: its chains do not show `{lower} ← {upper}`, which rules.toml states"
    for upper, lower in sorted(shown - stated):
        yield f"{path.name}: shows `{lower} ← {upper}`, which rules.toml does not state"
