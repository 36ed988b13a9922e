"""One dict that only grows, beside some work."""

from pacing import rounds

LOG = {}


def record(number):
    LOG.update(dict.fromkeys(range(number * 60, number * 60 + 60)))  # LEAK


def handle(number):
    record(number)  # LEAK
    return len([str(k) for k in range(100)])


for number in rounds(6000):
    handle(number)
