"""One large native block at first, some of middle size, then small objects."""

from kinds import work

table = bytearray(64 << 20)
rows = [bytearray(200_000 + 1_000 * number) for number in range(60)]
kept: list[object] = []
for turn in range(5):
    work(8, kept, turn)
    rows[turn] = bytearray(300_000)
print(f"giant_block_first: {len(table)}, {len(rows)}, {len(kept)}")
