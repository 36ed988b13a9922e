"""Labels the tasks of Spark in the Python workers of PySpark: as the program that starts them."""

from __future__ import annotations

import sys
from functools import wraps

from pyspark import daemon
from pyspark.taskcontext import TaskContext

import nthbyte

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_READS_WORK = ("read_command", "read_udfs", "read_udtf")
"""The functions of ``pyspark.worker`` one of which reads what a task does, once its context is known."""

_entered: list[Any] = []
"""The label of the task at work. A worker has one at a time, and no thread of its own that needs it."""


def label() -> None:
    """Labels what this process's workers do.

    ``SparkSession.builder.config("spark.python.daemon.module", "nthbyte.integrations.spark")`` makes Spark's executors
    start their Python workers by this module, which calls it. The label ``task`` is the job's description
    (``SparkContext.setJobDescription``), or else the line that began it, such as ``collect at /srv/app.py:17``;
    ``stage`` and ``partition`` are the numbers that Spark's own pages show.
    """
    work: Any = daemon.worker
    if hasattr(work, "_nthbyte"):
        return

    @wraps(work)
    def labelled(*args: Any) -> Any:
        # In the forked worker: pyspark.worker may import what starts threads.
        _label_worker()
        try:
            return work(*args)
        finally:
            _leave()

    labelled._nthbyte = True  # type: ignore[attr-defined]
    daemon.worker = labelled


def _label_worker() -> None:
    from pyspark import worker

    for name in _READS_WORK:
        read = getattr(worker, name, None)
        if read is not None and not hasattr(read, "_nthbyte"):
            setattr(worker, name, _labelled(read))


def _labelled(read: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(read)
    def labelled(*args: Any) -> Any:
        context = TaskContext.get()
        if context is not None:
            _leave()
            _entered.append(nthbyte.label(**_labels(context)).__enter__())
        return read(*args)

    labelled._nthbyte = True  # type: ignore[attr-defined]
    return labelled


def _leave() -> None:
    while _entered:
        _entered.pop().__exit__(None, None, None)


def _labels(context: Any) -> dict[str, object]:
    stage = context.stageId()
    found = (context.getLocalProperty(name) for name in ("spark.job.description", "callSite.short"))
    task = next(filter(None, found), f"stage {stage}")
    return {"task": task, "stage": stage, "partition": context.partitionId()}


if __name__ == "__main__":
    label()
    # The worker's module looks at its arguments: they are pyspark.daemon's.
    sys.exit(daemon.manager())
