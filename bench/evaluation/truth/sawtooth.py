"""Memory rises and falls, each time nearly as high; the third time is the highest."""

from kinds import work

sizes = (14.0, 15.0, 17.0, 15.5, 14.5, 13.0)
base: list[object] = []
for turn, size in enumerate(sizes):
    kept: list[object] = []
    work(size, kept, turn)
    work(0.4, base, turn)
    kept.clear()
print(f"sawtooth: {len(base)}")
