"""All experiments, in the order of the page."""

from __future__ import annotations

from evaluation.experiment import Experiment
from evaluation.experiments import (
    allocation_or_not,
    allocation_rate,
    case_studies,
    exactness,
    holders,
    huge_pages,
    large_pages,
    memory_statistics,
    native_memory,
    native_work,
    one_sample,
    overhead,
    overhead_pypy,
    peers,
    period,
    period_by_itself,
    profile_size,
    time_samples,
    time_sampling,
)

ALL: tuple[Experiment, ...] = tuple(
    module.EXPERIMENT
    for module in (
        overhead,
        overhead_pypy,
        one_sample,
        native_memory,
        native_work,
        exactness,
        holders,
        period,
        period_by_itself,
        time_sampling,
        time_samples,
        memory_statistics,
        profile_size,
        peers,
        huge_pages,
        allocation_rate,
        allocation_or_not,
        case_studies,
        large_pages,
    )
)
