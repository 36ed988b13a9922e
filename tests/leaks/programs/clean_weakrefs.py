"""Objects register with a registry that does not keep them."""

import weakref

from pacing import rounds

REGISTRY = weakref.WeakValueDictionary()


class Widget:
    def __init__(self, number):
        self.number = number
        self.label = f"widget {number}" * 4
        REGISTRY[number] = self


SHOWN = []


def handle(number):
    SHOWN.append(Widget(number))
    if len(SHOWN) > 500:
        del SHOWN[:250]
    return len([str(k) for k in range(40)])


for number in rounds(8000):
    handle(number)
