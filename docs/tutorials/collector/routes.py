"""Loads a road map, and then answers questions about it."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Iterator

SIDE = 300


class Road:
    def __init__(self, start: Place, end: Place, minutes: int) -> None:
        self.start = start
        self.end = end
        self.minutes = minutes


class Place:
    def __init__(self, name: tuple[int, int]) -> None:
        self.name = name
        self.roads: list[Road] = []


def load() -> dict[tuple[int, int], Place]:
    """Returns a town: a grid of places, each with a road to its neighbours."""
    chance = random.Random(1)
    town = {(x, y): Place((x, y)) for x in range(SIDE) for y in range(SIDE)}
    for (x, y), place in town.items():
        for neighbour in ((x + 1, y), (x, y + 1), (x - 1, y), (x, y - 1)):
            if neighbour in town:
                place.roads.append(Road(place, town[neighbour], chance.randrange(1, 10)))
    return town


class Step:
    """A place on a way, with the step before it."""

    def __init__(self, place: Place, before: Step | None) -> None:
        self.place = place
        self.before = before


def way(start: Place, end: Place) -> list[tuple[int, int]]:
    """Returns the fastest way, by Dijkstra's algorithm."""
    number = itertools.count()
    waiting = [(0, next(number), Step(start, None))]
    done = set()
    while waiting:
        minutes, _, step = heapq.heappop(waiting)
        if step.place is end:
            return [one.place.name for one in steps(step)]
        if step.place in done:
            continue
        done.add(step.place)
        for road in step.place.roads:
            heapq.heappush(waiting, (minutes + road.minutes, next(number), Step(road.end, step)))
    return []


def steps(last: Step | None) -> Iterator[Step]:
    while last:
        yield last
        last = last.before


def main() -> None:
    town = load()
    chance = random.Random(2)
    for _ in range(15):
        x, y = chance.randrange(SIDE - 40), chance.randrange(SIDE - 40)
        way(town[x, y], town[x + 40, y + 40])


if __name__ == "__main__":
    main()
