"""Makes 100,000 points with floats, changes and compares them: pyperformance's `float`, twelve times."""

from corpus import pyperformance

benchmark = pyperformance("float")
for _ in range(12):
    greatest = benchmark.benchmark(benchmark.POINTS)
print(f"float: {greatest!r}")
