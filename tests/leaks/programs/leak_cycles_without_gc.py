"""Parents and children refer to each other, and the collector is switched off."""

import gc

from pacing import rounds

gc.disable()


class Node:
    def __init__(self, parent):
        self.parent = parent
        self.children = []  # LEAK
        if parent is not None:
            parent.children.append(self)  # LEAK


def handle(number):
    root = Node(None)  # LEAK
    for _ in range(5):
        Node(root)  # LEAK
    return sum(len(str(k)) for k in range(60))


for number in rounds(6000):
    handle(number)
