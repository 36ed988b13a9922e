"""Answers requests with pauses, keeps a cache, and has one rush in the middle."""

import time

from kinds import kinds

cache: dict[int, list[object]] = {}


def answer(request: int) -> int:
    """Calls some of the functions, and keeps one result in eight for good."""
    kept: list[object] = []
    for n, kind in enumerate(kinds()):
        if (request + n) % (1 + n) < 2:
            kind(6 + n, kept)
    if request % 8 == 0:
        cache[request] = kept
    return len(kept)


answered = 0
for request in range(500):
    answered += answer(request)
    if not 200 <= request < 320:
        time.sleep(0.004)
print(f"quiet_service: {answered}, {len(cache)} cached")
