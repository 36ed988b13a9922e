"""The rounds of a service: work, then waiting for the next request."""

import os
import time

SECONDS = float(os.environ.get("NTHBYTE_TEST_SECONDS", "60"))
"""How long a service runs. 0: without waiting."""

AT_ONCE = 0.02
"""Requests come in groups, one in so many seconds."""


def rounds(count):
    """Gives the numbers below ``count``, evenly over the time that a service runs."""
    begun = time.monotonic()
    number = 0
    while number < count:
        passed = time.monotonic() - begun
        due = count if passed >= SECONDS else int(count * passed / SECONDS)
        while number < due:
            yield number
            number += 1
        if number < count:
            time.sleep(AT_ONCE)
