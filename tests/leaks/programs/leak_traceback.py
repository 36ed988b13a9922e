"""Errors are collected with their tracebacks, and these hold the frames with all that is in them."""

from pacing import rounds

ERRORS = []


def parse(number):
    fields = [f"field {number} {k}" for k in range(30)]  # LEAK
    if number % 4 == 0:
        raise ValueError(fields[0])  # LEAK
    return fields


def handle(number):
    try:
        return parse(number)  # LEAK
    except ValueError as error:
        ERRORS.append(error)  # LEAK
        return []


for number in rounds(16000):
    handle(number)
