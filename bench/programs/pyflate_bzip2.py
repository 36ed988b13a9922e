"""Unpacks a bzip2 file in Python: pyperformance's `pyflate`."""

from corpus import pyperformance, pyperformance_data

benchmark = pyperformance("pyflate")
benchmark.bench_pyflake(2, str(pyperformance_data("pyflate") / "interpreter.tar.bz2"))
print("pyflate: done")
