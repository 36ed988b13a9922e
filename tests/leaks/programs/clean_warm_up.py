"""A service that fills its tables when it starts, and then serves."""

from pacing import rounds

TABLES = {}


def warm_up():
    for number in range(300):
        TABLES[number] = [f"{number} {k}" for k in range(60)]


def handle(number):
    return sum(len(row) for row in [row.upper() for row in TABLES[number % 300]])


warm_up()
for number in rounds(8000):
    handle(number)
