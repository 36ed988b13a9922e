"""Reads the parts of pprof's format that the evaluation needs: the leaf function of each sample, and its values.

The message is ``Profile`` of https://github.com/google/pprof/blob/main/proto/profile.proto: sample types are field 1, samples 2,
locations 4, functions 5, strings 6.
"""

from __future__ import annotations

from collections.abc import Iterator


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields the number and the value of each field of a protobuf message. Raises ``ValueError`` if it is none."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of kind {kind}")
        if at + size > len(data):
            raise ValueError("a field beyond the end")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("no number")
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _numbers(value: int | bytes) -> list[int]:
    """A repeated number, packed or not."""
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        found.append(number)
    return found


def leaves(data: bytes) -> Iterator[tuple[str, str, dict[str, int]]]:
    """Yields for each sample its innermost function, its file, and its values by the names of their types."""
    types: list[int] = []
    samples: list[tuple[list[int], list[int]]] = []
    locations: dict[int, int] = {}
    functions: dict[int, tuple[int, int]] = {}
    strings: list[str] = []
    for number, value in fields(data):
        if number == 6 and isinstance(value, bytes):
            strings.append(value.decode(errors="replace"))
        if not isinstance(value, bytes) or number not in (1, 2, 4, 5):
            continue
        parts = list(fields(value))
        plain = {key: part for key, part in parts if isinstance(part, int)}
        if number == 1:
            types.append(plain.get(1, 0))
        elif number == 2:
            where = [each for key, part in parts if key == 1 for each in _numbers(part)]
            samples.append((where, [each for key, part in parts if key == 2 for each in _numbers(part)]))
        elif number == 4:
            lines = [dict(fields(part)) for key, part in parts if key == 4 and isinstance(part, bytes)]
            # The first line is the innermost of inlined functions.
            function = lines[0].get(1, 0) if lines else 0
            locations[plain.get(1, 0)] = function if isinstance(function, int) else 0
        else:
            functions[plain.get(1, 0)] = (plain.get(2, 0), plain.get(4, 0))
    names = [strings[index] for index in types]
    for where, values in samples:
        name, file = functions.get(locations.get(where[0], 0), (0, 0)) if where else (0, 0)
        yield strings[name], strings[file], dict(zip(names, values))
