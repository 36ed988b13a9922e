"""What a program for macOS says of itself: its processor, the oldest macOS, libraries, and whether its signature holds.

A program on Apple's processors must be signed, if only by the linker (*ad hoc*), or the system ends it at its start.
Such a signature is a hash of each page. The layouts are those of ``mach-o/loader.h`` and ``kern/cs_blobs.h``.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

MAGIC = b"\xcf\xfa\xed\xfe"
PROCESSORS = {0x100000C: "arm64", 0x1000007: "x86_64"}
LC_CODE_SIGNATURE, LC_BUILD_VERSION, LC_VERSION_MIN_MACOSX = 0x1D, 0x32, 0x24
# The second one is for what may be missing.
LC_LOAD_DYLIB = (0xC, 0x80000018)
SUPER_BLOB, CODE_DIRECTORY = 0xFADE0CC0, 0xFADE0C02
SHA256 = 2


class Program(NamedTuple):
    """A Mach-O file of 64 bits."""

    processor: str
    oldest: tuple[int, int] | None
    """The version of macOS that it needs, if it says one."""
    libraries: list[str]
    signature: str
    """``valid``, ``missing``, or what is wrong with it."""


def read(data: bytes) -> Program:
    """Reads a file that begins with :data:`MAGIC`."""
    kind, commands = struct.unpack_from("<4xI8xI", data)
    oldest, libraries, signature = None, [], "missing"
    at = 32
    for _ in range(commands):
        command, size = struct.unpack_from("<II", data, at)
        if command in (LC_BUILD_VERSION, LC_VERSION_MIN_MACOSX):
            (version,) = struct.unpack_from("<I", data, at + (12 if command == LC_BUILD_VERSION else 8))
            oldest = (version >> 16, version >> 8 & 255)
        elif command in LC_LOAD_DYLIB:
            name = at + struct.unpack_from("<I", data, at + 8)[0]
            libraries.append(data[name : data.index(0, name)].decode())
        elif command == LC_CODE_SIGNATURE:
            place, length = struct.unpack_from("<II", data, at + 8)
            signature = _signature(data, data[place : place + length])
        at += size
    return Program(PROCESSORS.get(kind, f"{kind:#x}"), oldest, libraries, signature)


def _signature(data: bytes, blob: bytes) -> str:
    """What is to be said of a signature: ``valid`` if each page has the hash that it says."""
    magic, _, count = struct.unpack_from(">III", blob)
    if magic != SUPER_BLOB:
        return f"its magic is {magic:#x}"
    for index in range(count):
        (at,) = struct.unpack_from(">I", blob, 16 + 8 * index)
        magic, _, _, _, hashes, _, _, pages, limit = struct.unpack_from(">9I", blob, at)
        if magic != CODE_DIRECTORY:
            continue
        size, kind, _, shift = struct.unpack_from(">4B", blob, at + 36)
        if kind != SHA256:
            return f"its hashes are of the kind {kind}"
        if pages != -(-limit >> shift):
            return f"it has {pages} pages, and the program {-(-limit >> shift)}"
        for page in range(pages):
            end = min((page + 1) << shift, limit)
            start = at + hashes + page * size
            if hashlib.sha256(data[page << shift : end]).digest() != blob[start : start + size]:
                return f"the hash of page {page} differs"
        return "valid"
    return "it has no hashes"
