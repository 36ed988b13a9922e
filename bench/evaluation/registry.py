"""All experiments, in the order of the page."""

from __future__ import annotations

from evaluation.experiment import Experiment
from evaluation.experiments import (
    allocation_or_not,
    allocation_rate,
    case_studies,
    exactness,
    huge_pages,
    memory_statistics,
    overhead,
    peers,
    period,
    profile_size,
    time_sampling,
)

ALL: tuple[Experiment, ...] = tuple(
    module.EXPERIMENT
    for module in (
        overhead,
        exactness,
        period,
        time_sampling,
        memory_statistics,
        profile_size,
        peers,
        huge_pages,
        allocation_rate,
        allocation_or_not,
        case_studies,
    )
)
