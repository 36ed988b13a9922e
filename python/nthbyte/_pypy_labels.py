"""The labels of PyPy.

Its contexts are Python objects, which the agent cannot read. So it is told which labels are in force whenever that
changes: when one is entered or left, and when a thread's context becomes another one. For the latter, the function is
replaced by which ``contextvars`` and greenlets set a thread's context: at the first label of a process, not before.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from nthbyte._agent import Agent

_DEEPEST = 64
_MOST_LABELS = 1 << 12
_LONGEST_KEY, _LONGEST_VALUE = 64, 256
_OTHER = "(other)"


def begin(agent: Agent, needs_keys: str) -> tuple[Any, Any, Any]:
    """Returns the class of labels, their context variable, and a function that runs work with a value of it."""
    import _contextvars
    from contextvars import ContextVar

    import __pypy__

    library = agent._library  # type: ignore[attr-defined]
    tell, define = library.set_labels, library.define_labels
    variable: ContextVar[_Entered | None] = ContextVar("nthbyte.labels")
    replaced = __pypy__.set_contextvar_context

    def set_contextvar_context(context: Any) -> None:
        replaced(context)
        entered = None if context is None else context._data.get(variable, None)
        tell(0 if entered is None else entered.number)

    _contextvars.set_contextvar_context = set_contextvar_context  # type: ignore[attr-defined]
    __pypy__.set_contextvar_context = set_contextvar_context

    def force(entered: _Entered | None) -> None:
        variable.set(entered)
        tell(0 if entered is None else entered.number)

    class label:
        __slots__ = ("_entered", "_names")
        _entered: dict[_Entered | None, _Entered]
        _names: tuple[tuple[str, str], ...]

        def __new__(cls, /, *other: object, **labels: object) -> label:
            if other or not labels:
                raise TypeError(needs_keys)
            names = tuple(
                [(_cut(key, _LONGEST_KEY), _cut(str(labels[key]), _LONGEST_VALUE)) for key in labels]
            )
            known = kept.get(names)
            if known is None:
                known = object.__new__(cls)
                known._names, known._entered = names, {}
                if len(kept) < _MOST_LABELS:
                    known = kept.setdefault(names, known)
            return known

        def __enter__(self) -> label:
            entered = self._inside(variable.get(None))
            if entered is not None:
                force(entered)
            return self

        def __exit__(self, *error: object) -> None:
            at = variable.get(None)
            inner = []
            while at is not None and at.label is not self:
                inner.append(at.label)
                at = at.outer
            if at is not None:
                left = at.outer
                for one in reversed(inner):
                    left = one._inside(left)
                force(left)

        def __call__(self, function: Any) -> Any:
            from nthbyte._labels import decorator

            return decorator(self)(function)

        def __repr__(self) -> str:
            return f"nthbyte.label({', '.join([f'{key}={value!r}' for key, value in self._names])})"

        def _inside(self, outer: _Entered | None) -> _Entered | None:
            """The set in force when this is entered inside of ``outer``; None if that is too deep."""
            entered = self._entered.get(outer)
            if entered is None:
                if outer is not None and outer.depth >= _DEEPEST:
                    return outer
                entered = _Entered(outer, self, numbers)
                if len(self._entered) < 64:
                    self._entered[outer] = entered
            return entered

    kept: dict[tuple[tuple[str, str], ...], label] = {}
    known_numbers: dict[tuple[tuple[str, str], ...], int] = {}

    def numbers(names: tuple[tuple[str, str], ...]) -> int:
        number = known_numbers.get(names)
        if number is None:
            # Once there are too many sets, a new one is one of few, which must be there by then.
            others = tuple([(key, _OTHER) for key, _ in names])
            spare = 0 if others == names else numbers(others)
            number = define(library.c_string("\x1f".join([text for name in names for text in name]))) or spare
            if number != spare or others == names:
                known_numbers[names] = number
        return number

    def carry(value: Any, function: Any, args: Any, kwargs: Any) -> Any:
        before = variable.get(None)
        force(value)
        try:
            return function(*args, **kwargs)
        finally:
            force(before)

    return label, variable, carry


class _Entered:
    """The set in force: the value of the context variable."""

    __slots__ = ("depth", "label", "names", "number", "outer")
    names: tuple[tuple[str, str], ...]
    depth: int

    def __init__(self, outer: _Entered | None, label: Any, numbers: Callable[[Any], int]):
        names = {} if outer is None else dict(outer.names)
        names.update(label._names)
        self.names = tuple(names.items())
        self.number = numbers(self.names)
        self.outer = outer
        self.label = label
        self.depth = 1 if outer is None else outer.depth + 1


def _cut(text: str, most: int) -> str:
    return text.replace("\x1f", " ").replace("\0", " ")[:most]
