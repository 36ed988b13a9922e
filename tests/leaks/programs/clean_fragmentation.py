"""Batches of which a few objects stay, scattered over the arenas, for as long as a window of batches."""

import collections

from pacing import rounds

RECENT = collections.deque(maxlen=12)


def batch(number):
    objects = [bytes(64 + (number + k) % 400) for k in range(3000)]
    RECENT.append(objects[:: 37 + number % 5])
    return len(objects)


for number in rounds(600):
    batch(number)
