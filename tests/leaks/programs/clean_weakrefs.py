"""Objects register with a registry that does not keep them."""

import weakref

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


for number in range(8000):
    handle(number)
