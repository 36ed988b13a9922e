"""What each tool says: bytes by function. A function is its own name, without its class, and the name of its file."""

from __future__ import annotations

import ast
import gzip
import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from evaluation import profile
from evaluation.pprof import fields, leaves

Found = Counter[tuple[str, str]]


class Unreadable(Exception):
    """A tool's file has not the form that is known here."""


def _key(name: str, file: str) -> tuple[str, str]:
    return name.rsplit(".", 1)[-1], file.rsplit("/", 1)[-1]


def nthbyte(path: Path) -> Found:
    """The functions' own bytes."""
    found: Found = Counter()
    for row in profile.summary(path)["rows"]:
        found[_key(row["name"], row["file"] or "")] += row["self_bytes"]["estimate"]
    return found


def memray(folder: Path) -> Found:
    """The bytes of all allocations, by the innermost Python function."""
    import memray

    found: Found = Counter()
    kinds = memray.AllocatorType
    frees = {kinds.FREE, kinds.MUNMAP, kinds.PYMALLOC_FREE}
    with memray.FileReader(folder / "out.bin") as reader:
        stacks: dict[int, tuple[str, str]] = {}
        for record in reader.get_allocation_records():
            if record.allocator in frees:
                continue
            key = stacks.get(record.stack_id)
            if key is None:
                trace = record.stack_trace(max_stacks=1)
                key = stacks[record.stack_id] = _key(trace[0][0], trace[0][1]) if trace else ("", "")
            found[key] += record.size
    found.pop(("", ""), None)
    return found


def listed(folder: Path) -> Found:
    """What ``under/with_tracemalloc.py`` lists."""
    found: Found = Counter()
    for file, line, size in json.loads((folder / "lines.json").read_text()):
        found[_key(_function(file, line), file)] += size
    return found


def scalene(folder: Path) -> Found:
    """What its lines allocated."""
    found: Found = Counter()
    for file, of_file in json.loads((folder / "out.json").read_text())["files"].items():
        for line in of_file["lines"]:
            if line["n_malloc_mb"]:
                found[_key(_function(file, line["lineno"]), file)] += round(line["n_malloc_mb"] * (1 << 20))
    return found


def pprof(folder: Path) -> Found:
    """The allocated bytes in all pprof files, and in all requests to a server."""
    found: Found = Counter()
    files = [*folder.glob("*.pprof"), *folder.glob("request-*.bin")]
    if not files:
        raise Unreadable("it wrote no profile")
    for file in files:
        data = _unpacked(file.read_bytes())
        for name, path, values in leaves(_unpacked(_pushed(data)) if file.suffix == ".bin" else data):
            size = next((values[kind] for kind in ("alloc-space", "alloc_space") if kind in values), None)
            if size is None:
                raise Unreadable(f"its values are {', '.join(values)}")
            found[_key(name, path)] += size
    return found


def _unpacked(data: bytes) -> bytes:
    """Data without its compression."""
    if data[:4] == b"\x28\xb5\x2f\xfd":
        import zstandard

        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    if data[:2] == b"\x1f\x8b":
        return _unpacked(gzip.decompress(data))
    return data


def _pushed(data: bytes) -> bytes:
    """The first profile of a request to Pyroscope: field 1 is a series, its field 2 a sample, and that one's field 1 the profile."""
    for number in (1, 2, 1):
        data = next((value for key, value in fields(data) if key == number and isinstance(value, bytes)), b"")
    return data


@cache
def _functions(file: str) -> list[tuple[int, int, str]]:
    """The first and the last line of each function of a file, outer ones first."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    those: list[Any] = [
        node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    return sorted((node.lineno, node.end_lineno or node.lineno, node.name) for node in those)


def _function(file: str, line: int) -> str:
    inside = [name for first, last, name in _functions(file) if first <= line <= last]
    return inside[-1] if inside else "<module>"
