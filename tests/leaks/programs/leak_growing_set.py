"""One set that only grows, beside some work."""

from pacing import rounds

LOG = set()


def record(number):
    LOG.update(range(number * 80, number * 80 + 80))  # LEAK


def handle(number):
    record(number)  # LEAK
    return len([str(k) for k in range(100)])


for number in rounds(6000):
    handle(number)
