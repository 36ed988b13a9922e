"""References that only C holds: a default dictionary behind a partial in an atexit table."""

import atexit
import functools

from pacing import rounds


def nothing(buffer):
    return None


def handle(number):
    work = "".join(str(k) for k in range(80))
    buffer = bytearray(300 + len(work) % 7)  # LEAK
    atexit.register(functools.partial(nothing, buffer))  # LEAK
    return number


for number in rounds(16000):
    handle(number)
