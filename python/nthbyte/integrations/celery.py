"""Labels the tasks of Celery by their names."""

from __future__ import annotations

from celery.signals import task_postrun, task_prerun

import nthbyte

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def label() -> None:
    """Labels what tasks do, in this process and in its workers, by their names. Call it where tasks are defined."""
    # Celery keeps weak references otherwise.
    task_prerun.connect(_begin, weak=False, dispatch_uid="nthbyte")
    task_postrun.connect(_end, weak=False, dispatch_uid="nthbyte")


def _begin(task: Any, **_: Any) -> None:
    nthbyte.label(task=task.name).__enter__()


def _end(task: Any, **_: Any) -> None:
    nthbyte.label(task=task.name).__exit__(None, None, None)
