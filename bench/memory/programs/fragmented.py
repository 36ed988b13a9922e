"""One object of 250 survives: nearly every page keeps one, and cannot be used for other sizes."""

import time


def keep(number: int) -> tuple[str, int]:
    """Returns what survives."""
    return ("keep", number)


def fill(count: int) -> list[tuple[str, int]]:
    """Fills memory, and leaves holes in it."""
    kept, others = [], []
    for number in range(count):
        if number % 250:
            others.append(("other", number))
        else:
            kept.append(keep(number))
    return kept


survivors = fill(2_000_000)
end = time.monotonic() + 1
while time.monotonic() < end:
    pass
print(len(survivors))
