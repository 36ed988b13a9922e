"""Draws spheres over a plane: pyperformance's `raytrace`."""

from corpus import pyperformance

pyperformance("raytrace").bench_raytrace(4, 100, 100, None)
print("raytrace: done")
