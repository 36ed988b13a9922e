"""Labels the tasks of Dask by what they compute, in the workers of ``distributed``."""

from __future__ import annotations

from functools import wraps

from distributed.diagnostics.plugin import WorkerPlugin
from distributed.utils import key_split
from distributed.worker import Worker

import nthbyte

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Labels(WorkerPlugin):  # type: ignore[misc]
    """Labels what each worker's tasks do: ``client.register_plugin(nthbyte.integrations.dask.Labels())``.

    The label ``task`` is the name that Dask's own dashboard groups by, such as ``read-parquet`` or ``sum``, and
    ``partition`` the number of the partition or block, where a task's key has one.
    """

    name = "nthbyte-labels"

    def setup(self, worker: Any) -> None:
        """Labels this worker's tasks from now on."""
        label()


def label() -> None:
    """Labels the tasks of the workers in this process; :class:`Labels` calls it in each worker's."""
    execute: Any = Worker.execute
    if hasattr(execute, "_nthbyte"):
        return

    @wraps(execute)
    async def labelled(self: Any, key: Any, **options: Any) -> Any:
        # Dask runs the task in a thread with a copy of this context.
        with nthbyte.label(**_labels(key)):
            return await execute(self, key, **options)

    labelled._nthbyte = True  # type: ignore[attr-defined]
    Worker.execute = labelled


def _labels(key: Any) -> dict[str, str]:
    labels = {"task": key_split(key)}
    if isinstance(key, tuple) and all(isinstance(number, int) for number in key[1:]):
        labels["partition"] = ",".join(str(number) for number in key[1:])
    return labels
