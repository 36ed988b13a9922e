"""A small shop: 8,000 requests for pages, and one thing that is never forgotten."""

from __future__ import annotations

import html
import itertools
import json
import random
from dataclasses import dataclass

PRODUCTS = [{"id": number, "name": f"Lamp <{number}>", "price": number % 90 + 10} for number in range(200)]


@dataclass
class Visit:
    path: str
    at: int


class Sessions:
    """What visitors looked at last, by the number of their session."""

    def __init__(self) -> None:
        self.last_seen: dict[str, Visit] = {}

    def remember(self, session: str, path: str, at: int) -> None:
        self.last_seen[session] = Visit(path, at)


class Shop:
    def __init__(self) -> None:
        self.sessions = Sessions()
        self.pages: dict[int, str] = {}

    def handle(self, session: str, path: str, at: int) -> str:
        self.sessions.remember(session, path, at)
        page = int(path.rpartition("/")[2])
        if page % 10:
            return self.listing(page)
        # A page that is asked for often is kept. There are twenty of them.
        if page not in self.pages:
            self.pages[page] = self.listing(page)
        return self.pages[page]

    def listing(self, page: int) -> str:
        rows = [self.row(product) for product in PRODUCTS if (product["id"] + page) % 3]
        return "<table>" + "".join(rows) + "</table>"

    def row(self, product: dict) -> str:
        details = json.loads(json.dumps(product))
        name = html.escape(details["name"])
        return f"<tr><td>{name}</td><td>{details['price']:.2f}</td></tr>"


SHOP = Shop()


def main() -> None:
    visitors = random.Random(1)
    clock = itertools.count()
    for _ in range(8000):
        # A visitor without a cookie gets a new session.
        session = f"{visitors.getrandbits(64):016x}"
        SHOP.handle(session, f"/products/page/{visitors.randrange(200)}", next(clock))


if __name__ == "__main__":
    main()
