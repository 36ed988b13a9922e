"""One list that only grows, beside some work."""

from pacing import rounds

LOG = []


def record(number):
    LOG.extend([None] * 130)  # LEAK


def handle(number):
    record(number)  # LEAK
    return len([str(k) for k in range(100)])


for number in rounds(6000):
    handle(number)
