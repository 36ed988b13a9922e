"""A queue that grows while the consumer is slow, and shrinks when it catches up."""

import collections

from pacing import rounds

QUEUE = collections.deque()


def produce(number):
    QUEUE.append({"number": number, "body": "x" * 300})


def consume():
    item = QUEUE.popleft()
    return [str(k) for k in range(20)], item


for number in rounds(6000):
    for _ in range(2 if number < 3000 else 1):
        produce(number)
    for _ in range(1 if number < 3000 else 2):
        consume()
