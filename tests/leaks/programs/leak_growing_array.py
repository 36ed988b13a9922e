"""One array that only grows, beside some work."""

import array

from pacing import rounds

LOG = array.array("d")


def record(number):
    LOG.extend((float(number),) * 130)  # LEAK


def handle(number):
    record(number)  # LEAK
    return len([str(k) for k in range(100)])


for number in rounds(6000):
    handle(number)
