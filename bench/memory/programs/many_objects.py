"""Small objects of several types, all alive."""

import time


class Node:
    """An object with a dictionary or inline values."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = f"node {number}"
        self.links: list[int] = [number, number + 1]


nodes = {number: Node(number) for number in range(300_000)}
end = time.monotonic() + 1
while time.monotonic() < end:
    found = sum(nodes[number].links[0] for number in range(0, 300_000, 7))
print(found)
