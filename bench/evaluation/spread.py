"""Medians, with what they vary by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles


@dataclass(frozen=True)
class Spread:
    """The median of some values, and their quartiles; of less than four values, the smallest and the largest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of one value or more."""
        if len(values) < 4:
            return cls(median(values), min(values), max(values))
        low, _, high = quantiles(values, n=4, method="inclusive")
        return cls(median(values), low, high)

    def text(self, digits: int = 3) -> str:
        """As tables show it: ``1.012 (1.008–1.019)``."""
        low, middle, high = (f"{value:.{digits}f}" for value in (self.low, self.median, self.high))
        return middle if low == high else f"{middle} ({low}–{high})"
