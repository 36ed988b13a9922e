"""A cache with a bound, which it reaches; then the oldest make room."""

import collections

from pacing import rounds

CACHE = collections.OrderedDict()


def handle(number):
    CACHE[number] = {"body": str(number) * 20, "rows": list(range(number, number + 10))}
    if len(CACHE) > 1000:
        CACHE.popitem(last=False)
    return len([str(k) for k in range(40)])


for number in rounds(6000):
    handle(number)
