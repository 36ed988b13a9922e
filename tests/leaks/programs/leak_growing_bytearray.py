"""One bytearray that only grows, beside some work."""

from pacing import rounds

LOG = bytearray()


def record(number):
    LOG.extend(b"x" * 1040)  # LEAK


def handle(number):
    record(number)  # LEAK
    return len([str(k) for k in range(100)])


for number in rounds(6000):
    handle(number)
