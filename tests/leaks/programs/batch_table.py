"""A job that loads a table, holds it, and computes with it."""


def load():
    return [(number, f"name {number}", number * 0.5) for number in range(200000)]


def compute(table, turn):
    return sorted(len(name) * turn + value for _, name, value in table)[:3]


def main():
    table = load()
    for turn in range(20):
        compute(table, turn)


main()
