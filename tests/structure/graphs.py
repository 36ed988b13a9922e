"""Cycles in graphs of names."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

Graph = Mapping[str, AbstractSet[str]]


def shortest_path(graph: Graph, start: str, end: str) -> list[str] | None:
    """Returns the nodes of a shortest path of at least one edge, both ends included."""
    before: dict[str, str] = {}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        for after in sorted(graph.get(node, ())):
            if after == end:
                path = [end]
                while True:
                    path.append(node)
                    if node == start:
                        return path[::-1]
                    node = before[node]
            if after not in before and after != start:
                before[after] = node
                waiting.append(after)
    return None


def cycles(graph: Graph) -> list[list[str]]:
    """Returns a shortest cycle through each edge that has one, without duplicates: `[a, b, a]`."""
    found: dict[frozenset[str], list[str]] = {}
    for node in sorted(graph):
        for after in sorted(graph[node]):
            back = [after] if after == node else shortest_path(graph, after, node)
            if back:
                found.setdefault(frozenset(back), [node, *back])
    return list(found.values())


def circles(graph: Graph) -> list[list[str]]:
    """Returns the nodes that all lead to each other, two or more, in order: the components of the graph."""
    beyond = {node: reachable(graph, node) for node in graph}
    found = {
        tuple(sorted(other for other in after if node in beyond.get(other, ())))
        for node, after in beyond.items()
    }
    return [list(together) for together in sorted(found) if len(together) > 1]


def reachable(graph: Graph, start: str) -> set[str]:
    """Returns all nodes that a path of at least one edge leads to."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = set(graph.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found
