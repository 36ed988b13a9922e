"""Collects half a million kept references again and again: pyperformance's `gc_traversal`."""

from corpus import pyperformance

pyperformance("gc_traversal").benchamark_collection(160, 1000)
print("gc_traversal: done")
