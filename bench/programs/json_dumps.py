"""Writes small and large JSON texts: pyperformance's `json_dumps`."""

from corpus import pyperformance

benchmark = pyperformance("json_dumps")
cases = [
    (data, range(count))
    for data, count in (benchmark.EMPTY, benchmark.SIMPLE, benchmark.NESTED, benchmark.HUGE)
]
for _ in range(80):
    benchmark.bench_json_dumps(cases)
print("json_dumps: done")
