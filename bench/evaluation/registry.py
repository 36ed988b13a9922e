"""All experiments, in the order of the page."""

from __future__ import annotations

from evaluation.experiment import Experiment
from evaluation.experiments import (
    exactness,
    memory_statistics,
    overhead,
    peers,
    period,
    profile_size,
)

ALL: tuple[Experiment, ...] = tuple(
    module.EXPERIMENT for module in (overhead, exactness, period, memory_statistics, profile_size, peers)
)
