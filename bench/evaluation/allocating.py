"""Programs that allocate: two benchmarks that do so as fast as possible, and two real tasks.

    allocating.py PROGRAM [SHARE]

SHARE, 1 by default, makes them shorter, for interpreters that are slower than PyPy.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tokenize


class Node:
    """A node of a binary tree."""

    def __init__(self, left=None, right=None):
        self.left = left
        self.right = right


def bottom_up(depth):
    """Returns a tree, built from its leaves up."""
    if depth <= 0:
        return Node()
    return Node(bottom_up(depth - 1), bottom_up(depth - 1))


def top_down(depth, node):
    """Builds a tree below a node, from the root down."""
    if depth > 0:
        node.left = Node()
        node.right = Node()
        top_down(depth - 1, node.left)
        top_down(depth - 1, node.right)


def gcbench(share=1.0):
    """Trees of many depths, beside a long-lived tree and a long array, like Boehm's GCBench."""
    bottom_up(18)
    long_lived = Node()
    top_down(16, long_lived)
    array = [1.0 / (index + 1) for index in range(250_000)]
    for depth in range(4, 17, 2):
        for _ in range(int(share * (1 << 19)) >> depth):
            root = Node()
            top_down(depth, root)
            bottom_up(depth)
    return array[1000], long_lived


def loop(share=1.0):
    """Only allocates: two integers are live at any time, all others are garbage."""
    last = before = None
    for number in range(int(share * 200_000_000)):
        before = last
        last = number
    return before, last


def tokens(share=1.0):
    """Tokenizes a part of the standard library."""
    folder = os.path.dirname(json.__file__)
    folder = os.path.dirname(folder)
    count = 0
    for name in ("argparse.py", "tarfile.py", "typing.py", "datetime.py", "inspect.py"):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            source = file.read()
        for _ in range(max(1, int(share * 15))):
            for _ in tokenize.generate_tokens(io.StringIO(source).readline):
                count += 1
    return count


def documents(share=1.0):
    """Writes and reads JSON documents."""
    records = [
        {"id": number, "name": f"record {number}", "tags": [str(number % 7), "x"], "value": number / 3}
        for number in range(2_000)
    ]
    for _ in range(max(1, int(share * 120))):
        text = json.dumps(records, indent=1)
        if json.loads(text) != records:
            raise AssertionError("JSON changed when it was written and read")
    return len(text)


PROGRAMS = {"gcbench": gcbench, "loop": loop, "tokens": tokens, "documents": documents}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](float(sys.argv[2]) if len(sys.argv) > 2 else 1.0)
