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
    time_sampling,
)

ALL: tuple[Experiment, ...] = tuple(
    module.EXPERIMENT
    for module in (overhead, exactness, period, time_sampling, memory_statistics, profile_size, peers)
)
