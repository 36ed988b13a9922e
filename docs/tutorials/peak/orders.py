"""Reads a year of orders and writes the customers who bought most."""

from __future__ import annotations

import csv
import io
import random
from collections import defaultdict
from collections.abc import Iterator

ORDERS = 150_000


def export() -> Iterator[str]:
    """Yields the lines of the file that the shop exports."""
    chance = random.Random(1)
    yield "order,customer,day,cents"
    for order in range(ORDERS):
        yield f"{order},customer-{chance.randrange(5000)},{order * 365 // ORDERS},{chance.randrange(100, 20_000)}"


def read(lines: Iterator[str]) -> list[dict[str, str]]:
    return list(csv.DictReader(lines))


def by_customer(orders: list[dict[str, str]]) -> dict[str, list[dict[str, str]]]:
    groups = defaultdict(list)
    for order in orders:
        groups[order["customer"]].append(order)
    return groups


def totals(groups: dict[str, list[dict[str, str]]]) -> list[tuple[int, str]]:
    sums = ((sum(int(order["cents"]) for order in orders), customer) for customer, orders in groups.items())
    return sorted(sums, reverse=True)


def report(best: list[tuple[int, str]]) -> str:
    text = io.StringIO()
    for place, (cents, customer) in enumerate(best, start=1):
        text.write(f"{place:5} {customer:15} {cents / 100:12.2f}\n")
    return text.getvalue()


def main() -> None:
    orders = read(export())
    best = totals(by_customer(orders))
    del orders
    for _ in range(10):
        report(best)


if __name__ == "__main__":
    main()
