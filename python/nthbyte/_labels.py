"""Labels: what a program says that it is working on.

One context variable has the labels in force as its value: an object of the agent's, which samples read without running
Python. Here are the parts that are not hot: the checks before the first label, decorators, and what carries labels into
the threads of executors. ``_pypy_labels`` has the labels of PyPy.
"""

from __future__ import annotations

import sys

from nthbyte import _agent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator
    from contextvars import ContextVar
    from types import ModuleType, TracebackType
    from typing import Any, Callable, Protocol, TypeVar

    _F = TypeVar("_F", bound=Callable[..., Any])

    class label:
        """Labels allocations, and the time that is used, in a ``with`` block.

        For example ``with nthbyte.label(endpoint="/checkout"):``. As a decorator it labels each call of a function or
        a coroutine; of a generator, or an asynchronous one, each of its steps, and not what its consumer does between
        them.

        Inner labels are added to outer ones; of one key, the inner value counts. Labels follow ``contextvars``: over
        ``await``, into tasks, ``asyncio.to_thread`` and greenlets; and into the threads of executors. Reports select by
        them (``--label endpoint=/checkout``) and group by them (``--by label:endpoint``).

        Values that are not ``str`` are shown by ``str``. Keys are cut at 64 bytes, values at 256. A profile names 1,000
        values of a key; the others are together, as ``(other)``. One label may be entered at several places at a time.
        To leave it never raises. Where nthbyte does not work, labels do nothing.
        """

        def __init__(self, **labels: object) -> None: ...
        def __enter__(self) -> label: ...
        def __exit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            traceback: TracebackType | None,
            /,
        ) -> None: ...
        def __call__(self, function: _F, /) -> _F: ...

    class _Native(Protocol):
        label: type[label]

        def begin_labels(self) -> ContextVar[Any] | None: ...
        def locate_context(self, context: Any, /) -> str | None: ...
        def sees_label(self, expected: object, /) -> str | None: ...
        def read_labels(self, agrees: bool, /) -> None: ...


NEEDS_KEYS = 'nthbyte.label takes keys with values, such as nthbyte.label(endpoint="/checkout")'


class _NoLabel:
    """The label of an interpreter that the agent does not support, and of sub-interpreters: it does nothing."""

    def __init__(self, *other: object, **labels: object):
        if other or not labels:
            raise TypeError(NEEDS_KEYS)

    def __enter__(self) -> _NoLabel:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __call__(self, function: Any) -> Any:
        return function


def _agrees(native: _Native, variable: ContextVar[Any]) -> bool:
    """Whether samples would see the values that the interpreter says, in contexts with no, few and many variables."""
    from contextvars import Context, ContextVar, copy_context

    contexts = [Context() for _ in range(4)]
    if not all(context.run(native.locate_context, context) for context in contexts):
        return False
    # Enough for a second level of the context's map, and for one of its dense nodes.
    others: list[ContextVar[int]] = [ContextVar(f"nthbyte.{number}") for number in range(40)]

    def sees() -> bool:
        results = [native.sees_label(None)]
        first, second = object(), object()
        token = variable.set(first)
        results.append(native.sees_label(first))
        for number, other in enumerate(others):
            other.set(number)
            if number % 8 == 0:
                results.append(native.sees_label(first))
        inner = copy_context()
        inner.run(variable.set, second)
        results += [inner.run(native.sees_label, second), native.sees_label(first)]
        variable.reset(token)
        results.append(native.sees_label(None))
        return all(results)

    return Context().run(sees)


def _begin() -> tuple[Any, Any, Any]:
    """Returns what makes labels, their context variable, and a function that runs work with a value of it.

    Without labels, returns what makes ones that do nothing.
    """
    try:
        agent = _agent.load()
    except _agent.Error:
        return _NoLabel, None, None
    if sys.implementation.name == "pypy":
        from nthbyte._pypy_labels import begin

        return begin(agent, NEEDS_KEYS)
    native: _Native = agent._native
    variable = native.begin_labels()
    if variable is None:
        return _NoLabel, None, None
    native.read_labels(_agrees(native, variable))
    return native.label, variable, _carry


def decorator(label: Any) -> Callable[[Any], Any]:
    """Returns the decorator of a label, for functions, coroutines, generators and asynchronous generators."""
    from functools import wraps
    from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction

    def decorate(function: Any) -> Any:
        if not callable(function):
            raise TypeError(f"a label decorates functions, and {function!r} is none; write: with {label!r}:")

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with label:
                return function(*args, **kwargs)

        @wraps(function)
        async def wait(*args: Any, **kwargs: Any) -> Any:
            with label:
                return await function(*args, **kwargs)

        @wraps(function)
        def steps(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            return (yield from label_steps(label, function(*args, **kwargs)))

        @wraps(function)
        async def async_steps(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            source = function(*args, **kwargs)
            sent = error = None
            while True:
                with label:
                    try:
                        item = await (source.asend(sent) if error is None else source.athrow(error))
                    except StopAsyncIteration:
                        return
                sent = error = None
                try:
                    sent = yield item
                except GeneratorExit:
                    with label:
                        await source.aclose()
                    raise
                except BaseException as thrown:
                    error = thrown

        if isasyncgenfunction(function):
            return async_steps
        if isgeneratorfunction(function):
            return steps
        return wait if iscoroutinefunction(function) else call

    return decorate


def label_steps(label: Any, source: Any) -> Generator[Any, Any, Any]:
    """Yields what an iterator yields. Its steps have the label, the use of their results has not."""
    source = iter(source)
    step: Any = source.__next__
    argument: tuple[Any, ...] = ()
    while True:
        with label:
            try:
                item = step(*argument)
            except StopIteration as end:
                return end.value
        step, argument = source.__next__, ()
        try:
            sent = yield item
            if sent is not None:
                step, argument = source.send, (sent,)
        except GeneratorExit:
            if hasattr(source, "close"):
                with label:
                    source.close()
            raise
        except BaseException as thrown:
            if not hasattr(source, "throw"):
                raise
            step, argument = source.throw, (thrown,)


def _carry(value: Any, function: Any, args: Any, kwargs: Any) -> Any:
    """Runs an executor's work with the labels of the one who gave it. Nothing else of that context is there."""
    token = _variable.set(value)
    try:
        return function(*args, **kwargs)
    finally:
        _variable.reset(token)


def _label_threads(module: ModuleType) -> None:
    """Makes ``ThreadPoolExecutor.submit`` carry labels; ``loop.run_in_executor`` calls it."""
    from functools import wraps

    executor: Any = module.ThreadPoolExecutor
    submit = executor.submit
    # With this option, a thread has the context of the work that it was started for: its labels must not stay.
    inherits = getattr(sys.flags, "thread_inherit_context", 0)

    @wraps(submit)
    def labelled_submit(self: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        value = _variable.get(None)
        if value is None and not inherits:
            return submit(self, fn, *args, **kwargs)
        return submit(self, _carrier, value, fn, args, kwargs)

    executor.submit = labelled_submit


def _label_processes(module: ModuleType) -> None:
    """Makes ``ProcessPoolExecutor.submit`` start processes without labels: they serve others, too."""
    from functools import wraps

    executor: Any = module.ProcessPoolExecutor
    submit = executor.submit

    @wraps(submit)
    def unlabelled_submit(self: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        if _variable.get(None) is None:
            return submit(self, fn, *args, **kwargs)
        return _carrier(None, submit, (self, fn, *args), kwargs)

    executor.submit = unlabelled_submit


_EXECUTORS = {
    "concurrent.futures.thread": ("ThreadPoolExecutor", _label_threads),
    "concurrent.futures.process": ("ProcessPoolExecutor", _label_processes),
}


class _ExecutorFinder:
    """Waits for the import of a module of executors, which a program need not have: then it finds it once, and goes."""

    def __init__(self, module: str):
        self._module = module

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self._module:
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            loader = spec.loader
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _EXECUTORS[name][1](module)

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _label_executors() -> None:
    for name, (executor, labelled) in _EXECUTORS.items():
        module = sys.modules.get(name)
        if module is not None and hasattr(module, executor):
            labelled(module)
        else:
            sys.meta_path.insert(0, _ExecutorFinder(name))


_variable: Any
_carrier: Any
if not TYPE_CHECKING:
    label, _variable, _carrier = _begin()
    if _variable is not None:
        _label_executors()
