"""Solves chains of constraints: pyperformance's `deltablue`."""

from corpus import pyperformance

benchmark = pyperformance("deltablue")
for _ in range(100):
    benchmark.delta_blue(200)
print("deltablue: done")
