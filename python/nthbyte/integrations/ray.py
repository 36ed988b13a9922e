"""Labels the tasks of Ray, and the calls of its actors, by their names."""

from __future__ import annotations

from functools import wraps
from inspect import isasyncgen, iscoroutine, isgenerator

from ray import get_runtime_context
from ray._private.function_manager import FunctionActorManager

import nthbyte
from nthbyte._labels import label_steps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Any


def label() -> None:
    """Labels what tasks and actors do in this worker; Ray calls it in each one if it is asked to.

    ``ray.init(runtime_env={"worker_process_setup_hook": "nthbyte.integrations.ray.label"})``. The label ``task`` is the
    name that Ray's dashboard shows: the function's or method's, or ``options(name=...)``'s.
    """
    found: Any = FunctionActorManager.get_execution_info
    if hasattr(found, "_nthbyte"):
        return

    @wraps(found)
    def get_execution_info(*args: Any, **options: Any) -> Any:
        info = found(*args, **options)
        function = info.function
        if not hasattr(function, "_nthbyte"):
            function = _labelled(function)
        return info._replace(function=function)

    get_execution_info._nthbyte = True  # type: ignore[attr-defined]
    FunctionActorManager.get_execution_info = get_execution_info


def _labelled(function: Any) -> Any:
    # What Ray asks of a method is among the attributes that are copied.
    @wraps(function)
    def labelled(*args: Any, **options: Any) -> Any:
        task = nthbyte.label(task=get_runtime_context().get_task_name() or function.__name__)
        with task:
            result = function(*args, **options)
        if iscoroutine(result):
            return _awaited(task, result)
        if isgenerator(result):
            return label_steps(task, result)
        if isasyncgen(result):
            return task(_items)(result)
        return result

    labelled._nthbyte = True  # type: ignore[attr-defined]
    return labelled


async def _awaited(task: Any, result: Any) -> Any:
    with task:
        return await result


async def _items(result: Any) -> AsyncIterator[Any]:
    async for item in result:
        yield item
