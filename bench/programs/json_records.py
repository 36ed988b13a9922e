"""Makes, writes, reads and groups JSON records, with the standard library only."""

import collections
import json

records = [
    {
        "id": n,
        "name": f"record {n}",
        "tags": [f"t{n % k}" for k in range(2, 9)],
        "value": n / 7,
        "child": {"n": [n, n + 1]},
    }
    for n in range(30_000)
]
for _ in range(3):
    text = json.dumps(records, indent=1)
    records = json.loads(text)
    by_tag = collections.defaultdict(list)
    for record in records:
        for tag in record["tags"]:
            by_tag[tag].append((record["name"], record["value"]))
    records = sorted(records, key=lambda record: (record["tags"], -record["value"]))
print(f"json: {len(text)} characters, {len(by_tag)} tags")
