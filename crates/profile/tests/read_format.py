"""A reader of profiles written from docs/format.md, to see whether that page is enough.

Prints a line for each event; read_format.rs prints the same from the Rust reader. Needs nothing
but libzstd.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import sys
import zlib
from collections.abc import Iterator

COLUMNS = (
    "Kinds Sites SiteDefinitions Times Sizes Blocks Points FreedSamples FreedTimes Nodes Cpu "
    "Collections CollectionTimes CollectionTotals Memory Numbers Texts Contexts Extensions"
).split()
MASK = (1 << 64) - 1


def decompress(data: bytes, length: int) -> bytes:
    zstd = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
    call = zstd.ZSTD_decompress
    call.restype = ctypes.c_size_t
    call.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    out = ctypes.create_string_buffer(max(length, 1))
    got = call(out, length, data, len(data))
    assert got == length, f"zstd says {got}, not {length}"
    return out.raw[:length]


class Bytes:
    """Bytes that are taken from the front."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def __bool__(self) -> bool:
        return self.at < len(self.data)

    def take(self, length: int) -> bytes:
        assert self.at + length <= len(self.data), "cut off"
        self.at += length
        return self.data[self.at - length : self.at]

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def varint(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                assert value <= MASK
                return value

    def signed(self) -> int:
        value = self.varint()
        return -(value + 1 >> 1) if value & 1 else value >> 1


def compilation(of: Bytes) -> str:
    process, thread, start, duration, optimizing, assembling, outcome = (of.varint() for _ in range(7))
    name = ("loop", "bridge", "aborted", "other")[min(outcome, 3)]
    parts = f"{min(optimizing, duration)} {min(assembling, duration)}"
    return f"compilation {process} {thread} {start} {duration} {parts} {name}"


def snapshot(of: Bytes) -> str:
    def text() -> str:
        return f"x{of.take(of.varint()).hex()}"

    process, time, reason, pause, outcome = (of.varint() for _ in range(5))
    name = ("complete", "paths", "none")[outcome]
    words = [f"snapshot {process} {time} {reason} {pause} {name} {text()}"]
    if outcome == 2:
        return f"{words[0]} 0 0 0"
    words += [f"{of.varint()} {of.varint()} {of.varint()}"]
    texts = ["x", *(text() for _ in range(of.varint()))]
    for number in range(1, of.varint() + 1):
        kind, parent, dominator = (of.varint() for _ in range(3))
        name, link, by = texts[of.varint()], of.varint(), texts[of.varint()]
        length, chain = of.varint(), of.varint() + 1
        trees = f"{number - parent} {number - dominator}"
        size = length - 1 if length else "-"
        words += [f"node {kind >> 1} {kind & 1} {trees} {name} {link} {by} {size} {chain}"]
    node = 0
    for _ in range(of.varint()):
        node += of.varint()
        words += [f"other {node} {of.varint()}"]
    for _ in range(of.varint()):
        bits = of.varint()
        by = ("", "garbage", "nobody")[bits & 3] or str(of.varint())
        what, size = texts[of.varint()], of.varint()
        sample = of.varint() if bits & 16 else "-"
        words += [f"sample {by} {what} {size} {bits >> 2 & 1} {bits >> 3 & 1} {sample}"]
    return " ".join(words)


def blocks(data: bytes, at: int) -> Iterator[bytes]:
    while at < len(data):
        header = data[at : at + 16]
        if len(header) == 16 and header[:4] == b"\xf5nbk":
            length, check, header_check = (
                int.from_bytes(header[i : i + 4], "little") for i in (4, 8, 12)
            )
            body = data[at + 16 : at + 16 + length]
            intact = len(body) == length and zlib.crc32(body) == check
            if intact and zlib.crc32(header[:12]) == header_check:
                yield body
                at += 16 + length
                continue
        at = data.find(b"\xf5nbk", at + 1)
        if at < 0:
            return


class Block:
    """A block, and what its events are relative to."""

    def __init__(self, body: bytes) -> None:
        source = Bytes(body)
        self.events = source.varint()
        self.code, self.node, self.type, self.thread, self.sample, self.label_set = (
            source.varint() for _ in range(6)
        )
        self.columns = {}
        for name in COLUMNS:
            length = source.varint()
            stored = source.varint() if length else 0
            column = source.take(stored)
            self.columns[name] = Bytes(column if stored == length else decompress(column, length))
        self.contexts: list[tuple[str, str]] = []
        self.sites: list[str] = []
        self.sizes: list[int] = []
        self.time = self.freed_time = self.cpu_time = self.collection_time = self.memory_time = 0
        self.collection_totals = [0] * 3
        self.memory_totals = [0] * 5

    def varint(self, column: str) -> int:
        return self.columns[column].varint()

    def relative(self, column: str, base: int) -> int:
        return (base + self.columns[column].signed()) & MASK

    def bytes(self) -> str:
        return "x" + self.columns["Texts"].take(self.varint("Numbers")).hex()

    def totals(self, column: str, present: int, last: list[int]) -> str:
        shown = []
        for at in range(len(last)):
            if present >> at & 1:
                last[at] = self.relative(column, last[at])
                shown.append(str(last[at]))
            else:
                shown.append("-")
        return " ".join(shown)

    def definition(self, kind: int) -> str:
        if kind == 0:
            self.code += 1
            line = f"code {self.code - 1} {self.bytes()} {self.bytes()} {self.varint('Numbers')}"
            what = self.varint("Numbers")
            if what == 2:
                return f"{line} image {self.bytes()}"
            return f"{line} {self.bytes() if what == 1 else '-'}"
        if kind == 1:
            self.node += 1
            parent = self.node - 1 - self.varint("Nodes")
            rest = " ".join(str(self.varint("Nodes")) for _ in range(3))
            return f"node {self.node - 1} {parent} {rest}"
        if kind == 2:
            self.type += 1
            return f"type {self.type - 1} {self.bytes()} {self.bytes()}"
        if kind == 3:
            self.thread += 1
            return f"thread {self.thread - 1} {self.varint('Numbers')} {self.bytes()}"
        if kind == 4:
            return f"name {self.varint('Numbers')} {self.bytes()}"
        if kind == 14:
            number = self.varint("Numbers")
            names = " ".join(self.bytes() for _ in range(4))
            return f"source {number} {names} {self.varint('Numbers')}"
        if kind == 15:
            return f"period {self.varint('Numbers')} {self.varint('Numbers')}"
        assert kind == 16, f"kind {kind}"
        self.label_set += 1
        parent = self.label_set - 1 - self.varint("Numbers")
        return f"label {self.label_set - 1} {parent} {self.bytes()} {self.bytes()}"

    def context(self, column: str) -> tuple[str, str]:
        """Returns source and label set, and the thread."""
        number = self.varint(column)
        if number == 0:
            thread, source = self.varint("Contexts"), self.varint("Contexts")
            label_set = self.label_set - self.columns["Contexts"].signed()
            self.contexts.append((f"{source} {label_set}", str(thread)))
            number = len(self.contexts)
        return self.contexts[number - 1]

    def allocation(self, survival: int, tick: int) -> str:
        self.sample += 1
        self.time = self.relative("Times", self.time)
        number = self.varint("Sites")
        if number == 0:
            context, thread = self.context("SiteDefinitions")
            node = self.node - self.columns["SiteDefinitions"].signed()
            self.sites.append(f"{context} {thread} {node} {self.varint('SiteDefinitions')}")
            self.sizes.append(0)
            number = len(self.sites)
        size = self.sizes[number - 1] = self.relative("Sizes", self.sizes[number - 1])
        block = self.relative("Blocks", max(16, (size + 15) // 16 * 16))
        points = self.varint("Points") + 1
        time, where = self.time * tick, self.sites[number - 1]
        return f"allocation {self.sample - 1} {time} {where} {size} {block} {points} {survival}"

    def event(self, tick: int) -> str:
        (kind,) = self.columns["Kinds"].take(1)
        if kind >= 64:
            extension = self.columns["Extensions"]
            if kind == 72:
                of = Bytes(extension.take(extension.varint()))
                try:
                    return snapshot(of)
                except (AssertionError, IndexError):
                    return "no snapshot"
            if kind == 78:
                try:
                    return compilation(Bytes(extension.take(extension.varint())))
                except (AssertionError, IndexError):
                    return "no compilation"
            return f"extension {kind} x{extension.take(extension.varint()).hex()}"
        if kind < 5 or kind > 13:
            return self.definition(kind)
        if kind < 8:
            return self.allocation(kind - 5, tick)
        if kind == 8:
            sample = self.sample - self.varint("FreedSamples")
            self.freed_time = self.relative("FreedTimes", self.freed_time)
            return f"freed {sample} {self.freed_time * tick}"
        if kind == 9:
            self.cpu_time = self.relative("Cpu", self.cpu_time)
            context, thread = self.context("Cpu")
            return f"cpu {self.cpu_time * tick} {context} {thread} {self.varint('Cpu')}"
        if kind == 10:
            what = f"{self.varint('Collections')} {self.varint('Collections')}"
            thread, present = self.varint("Collections"), self.varint("Collections")
            self.collection_time = self.relative("CollectionTimes", self.collection_time)
            duration = self.varint("CollectionTimes")
            totals = self.totals("CollectionTotals", present, self.collection_totals)
            return f"collection {what} {thread} {self.collection_time * tick} {duration} {totals}"
        if kind == 11:
            present = self.varint("Memory")
            self.memory_time = self.relative("Memory", self.memory_time)
            return f"memory {self.memory_time * tick} " + self.totals(
                "Memory", present, self.memory_totals
            )
        if kind == 12:
            return f"lost {self.varint('Numbers')} {self.varint('Numbers')}"
        assert kind == 13, f"kind {kind}"
        time = self.varint("Numbers") * tick
        return f"end {time} {self.varint('Numbers') if self.varint('Numbers') else '-'}"


def main(path: str) -> None:
    with open(path, "rb") as file:
        data = file.read()
    header = Bytes(data)
    assert header.take(8) == b"\x89nthb\r\n\x1a", "not a profile"
    assert header.u32() == 1, "a version that this reader does not know"
    tick = header.u32()
    meta = json.loads(header.take(header.u32()))
    assert zlib.crc32(data[: header.at]) == header.u32(), "damaged header"
    # A word may have line ends.
    command = " ".join(meta["command"]).replace("\n", "?").replace("\r", "?")
    print("session", meta["interpreter"], command)
    for source in meta["sources"]:
        print("from", *(source[name] for name in ("kind", "unit", "method", "distances", "period")))
    for body in blocks(data, header.at):
        block = Block(body)
        count = 0
        while block.columns["Kinds"]:
            print(block.event(tick))
            count += 1
        assert count == block.events, "events are counted wrong"
        assert not any(block.columns.values()), "something is left over"


main(sys.argv[1])
