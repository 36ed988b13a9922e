"""What share of a profile's time samples a function or a thread has."""

from __future__ import annotations

import math


def check_share(found: int, expected: float, of: int, *, together: float = 1, lost: int = 0) -> None:
    """Checks that ``found`` of ``of`` samples are the expected share, within six standard deviations of the binomial.

    ``together`` is how many samples arrive with one signal. All that are lost may be of one kind.
    """
    deviation = math.sqrt(together * of * expected * (1 - expected))
    assert abs(found - of * expected) <= 6 * deviation + 2 + lost, (found, of * expected, of, lost)
