"""What share of a profile's time samples a function or a thread has."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from pathlib import Path

from harness import firefox


def check_share(found: int, expected: float, of: int, *, together: float = 1, lost: int = 0) -> None:
    """Checks that ``found`` of ``of`` samples are the expected share, within six standard deviations of the binomial.

    ``together`` is how many samples arrive with one signal. All that are lost may be of one kind.
    """
    deviation = math.sqrt(together * of * expected * (1 - expected))
    assert abs(found - of * expected) <= 6 * deviation + 2 + lost, (found, of * expected, of, lost)


def together(profile: Path) -> float:
    """The mean number of samples that arrive with a sample, itself included: one signal may stand for several."""
    signals = Counter[tuple[str, float]]()
    for thread in firefox(profile)["threads"]:
        if thread["name"].startswith("CPU · "):
            times = itertools.accumulate(thread["samples"]["timeDeltas"])
            # The first row is the start of the process.
            times = itertools.islice(times, 1, None)
            signals.update((thread["tid"], round(time, 3)) for time in times)
    return sum(samples**2 for samples in signals.values()) / signals.total()
