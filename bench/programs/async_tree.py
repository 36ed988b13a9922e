"""A tree of 56,000 tasks without input or output: pyperformance's `async_tree`, twice."""

import asyncio

from corpus import pyperformance

benchmark = pyperformance("async_tree")
for _ in range(2):
    asyncio.run(benchmark.NoneAsyncTree().run())
print("async_tree: done")
