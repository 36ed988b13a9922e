"""Keeps a table of orders as data classes, changes a part of it each day, and reports: with the standard library only."""

import dataclasses
import random


@dataclasses.dataclass(frozen=True)
class Line:
    product: str
    count: int
    price: float


@dataclasses.dataclass(order=True)
class Order:
    number: int
    customer: str
    lines: list[Line] = dataclasses.field(compare=False)
    paid: bool = False

    def total(self) -> float:
        return sum(line.count * line.price for line in self.lines)


chosen = random.Random(1)


def order(number: int) -> Order:
    lines = [
        Line(f"p{chosen.randrange(500)}", chosen.randrange(1, 9), chosen.random() * 100) for _ in range(4)
    ]
    return Order(number, f"customer {chosen.randrange(3000)}", lines)


orders = {number: order(number) for number in range(20_000)}
for day in range(6):
    for number in chosen.sample(sorted(orders), 2_000):
        orders[number] = dataclasses.replace(orders[number], paid=True)
        fresh = order(len(orders) + 2_000 * day)
        orders[fresh.number] = fresh
    by_customer: dict[str, list[Order]] = {}
    for each in orders.values():
        by_customer.setdefault(each.customer, []).append(each)
    best = max(by_customer, key=lambda name: sum(each.total() for each in by_customer[name]))
rows = [dataclasses.asdict(each) for each in sorted(orders.values())[:10_000]]
print(f"dataclasses: {len(orders)} orders, {len(rows)} rows, {best}")
