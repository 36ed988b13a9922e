"""A table is loaded anew at intervals, and replaces the one before."""

from pacing import rounds

TABLES = {}


def load(number):
    TABLES["prices"] = {f"article {k}": (k, k * 0.5, f"{k + number:08d}") for k in range(4000)}


def handle(number):
    if number % 400 == 0:
        load(number)
    return len([TABLES["prices"].get(f"article {number % 4000}") for _ in range(20)])


for number in rounds(6000):
    handle(number)
