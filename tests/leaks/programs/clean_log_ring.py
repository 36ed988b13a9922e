"""The last messages are kept for a crash report."""

import collections

from pacing import rounds

RING = collections.deque(maxlen=2000)


def log(message, *arguments):
    RING.append(message % arguments)


def handle(number):
    log("request %d from %s took %d ms", number, f"client-{number % 100}", number % 17)
    log("answer %d", number)
    return len([str(k) for k in range(40)])


for number in rounds(8000):
    handle(number)
