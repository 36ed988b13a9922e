"""Makes cycles of objects that only the collector can free: pyperformance's `gc_collect`, with larger cycles."""

from corpus import pyperformance

pyperformance("gc_collect").benchamark_collection(60, 2000, 20)
print("gc_cycles: done")
