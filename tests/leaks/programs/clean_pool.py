"""Connections with buffers, opened when more are needed, and then used again."""

import random
import sys

from pacing import rounds

RANDOM = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 1)


class Connection:
    def __init__(self, number):
        self.number = number
        self.buffer = bytearray(20000)


class Pool:
    def __init__(self):
        self.free = []
        self.number = 0

    def take(self):
        if self.free:
            return self.free.pop()
        self.number += 1
        return Connection(self.number)

    def give(self, connection):
        self.free.append(connection)


POOL = Pool()
BUSY = []
for _ in rounds(12000):
    if BUSY and (len(BUSY) > 60 or RANDOM.random() < 0.5):
        POOL.give(BUSY.pop(int(RANDOM.random() * len(BUSY))))
    else:
        BUSY.append(POOL.take())
    len([str(k) for k in range(30)])
