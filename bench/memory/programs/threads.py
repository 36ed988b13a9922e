"""Threads that compress and parse: native blocks, stacks, heaps of the C library for each thread."""

import json
import lzma
import random
import threading

DATA = json.dumps([{"key": random.random(), "text": "x" * (i % 90)} for i in range(20_000)]).encode()
results: list[object] = []


def work() -> None:
    """Compresses, decompresses, parses, and keeps the result."""
    compressor = lzma.LZMACompressor(preset=4)
    packed = compressor.compress(DATA) + compressor.flush()
    results.append((json.loads(lzma.decompress(packed)), compressor, packed))


threads = [threading.Thread(target=work) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(results))
