"""Reads the wire format of protocol buffers, without a schema: https://protobuf.dev/programming-guides/encoding/."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

_VARINT, _FIXED, _BYTES = 0, 1, 2


def fields(message: bytes) -> defaultdict[int, list[Any]]:
    """Returns the values of a message by the numbers of their fields: whole numbers and bytes. Other types are errors.

    Packed numbers stay bytes.
    """
    found: defaultdict[int, list[Any]] = defaultdict(list)
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        value: Any
        if kind == _FIXED:
            found[tag >> 3].append(int.from_bytes(message[at : at + 8], "little"))
            at += 8
            continue
        value, at = _varint(message, at)
        if kind == _BYTES:
            end = at + value
            assert end <= len(message), "a value is cut off"
            value, at = message[at:end], end
        else:
            assert kind == _VARINT, f"a field of the type {kind}"
        found[tag >> 3].append(value)
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Returns a number, and where the next one begins."""
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
