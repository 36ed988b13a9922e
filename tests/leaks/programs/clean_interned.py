"""Names are interned; there are many, but not without end, and they come at random."""

import random
import sys

from pacing import rounds

RANDOM = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
NAMES = {}


def handle():
    name = sys.intern(f"name-of-a-thing-{int(RANDOM.random() * 2000):08d}")
    NAMES[name] = NAMES.get(name, 0) + 1
    return len([str(k) for k in range(20)])


for _ in rounds(16000):
    handle()
