"""Labels the tasks of asyncio: on PyPy, and by the chain of tasks that created them.

On CPython, samples have the names of tasks without this.
"""

from __future__ import annotations

import asyncio
import sys
from contextvars import ContextVar, copy_context
from functools import wraps
from threading import local

import nthbyte

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

SEPARATOR = " > "
_MOST_IN_A_CHAIN = 6

_wrapped: set[Any] = set()
_given = local()
"""The name that this thread is creating a task with."""
_chain = False
_names: ContextVar[tuple[str, ...]] = ContextVar("nthbyte.tasks", default=())
"""The chain of the task that runs."""


def label(*, chain: bool = False) -> None:
    """Labels what tasks do that are created from now on, in this process.

    The label ``task`` is the name that a task is created with, or else its coroutine's. With ``chain``, the names
    of the tasks that have created it come before, such as ``crawl > fetch``: the frames of a task end at the event
    loop, so that nothing else says for whom it works. A task that is created with a context of its own
    (``context=...``), as the first one of ``asyncio.run`` is, has no such label. Before 3.14, names given to a
    ``create_task`` that was imported by name before this call are not seen. Call it again once uvloop is imported.
    """
    global _chain
    _chain = chain
    loops: list[Any] = [asyncio.BaseEventLoop]
    uvloop = sys.modules.get("uvloop")
    if uvloop is not None:
        loops.append(uvloop.Loop)
    for loop in loops:
        if loop not in _wrapped:
            _wrapped.add(loop)
            loop.create_task = _labelled(loop.create_task)
    # These name a task only after they have created it.
    places: list[Any] = [asyncio, asyncio.tasks, getattr(asyncio, "TaskGroup", None)]
    if sys.version_info < (3, 14) and asyncio not in _wrapped:
        _wrapped.add(asyncio)
        for place in filter(None, places):
            place.create_task = _naming(place.create_task)


def _naming(create_task: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(create_task)
    def naming(*args: Any, **options: Any) -> Any:
        _given.name = options.get("name")
        try:
            return create_task(*args, **options)
        finally:
            _given.name = None

    return naming


def _labelled(create_task: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(create_task)
    def labelled(self: Any, coro: Any, **options: Any) -> Any:
        if options.get("context") is not None:
            return create_task(self, coro, **options)
        # A task copies the context in which it is created; so the caller's own stays as it is, and a task factory is
        # called as before.
        return copy_context().run(_create, create_task, self, coro, options)

    return labelled


def _create(create_task: Callable[..., Any], loop: Any, coro: Any, options: dict[str, Any]) -> Any:
    name = options.get("name") or getattr(_given, "name", None)
    # A task that this one's first step creates has its own name: a task factory may run that step here.
    _given.name = None
    name = name or getattr(coro, "__qualname__", None) or type(coro).__qualname__
    if _chain:
        names = _names.get()
        # A task that creates the next one of its kind again and again is one.
        if names[-1:] != (str(name),):
            names = (*names, str(name))[-_MOST_IN_A_CHAIN:]
            _names.set(names)
        name = SEPARATOR.join(names)
    nthbyte.label(task=name).__enter__()
    return create_task(loop, coro, **options)
