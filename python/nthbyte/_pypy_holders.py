"""Snapshots of who holds what, on PyPy.

The agent makes a copy of the process, in which this module goes on (``crates/pypy/src/holders``): it makes PyPy dump
its heap, asks the agent for what leads to samples, and finds the names of references. No code of the program runs in
the copy: attributes are read by the descriptors of built-in types, and finalizers are off.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import gc
import sys

# Built in. The modules `types` and `collections` would stay as 300 KiB of objects, which each collection of a program
# that has not imported them would look at.
from _collections import deque  # type: ignore[import-not-found]

from __pypy__.thread import _signals_enter, _signals_exit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType
    from typing import Any

    from nthbyte._pypy import _Library

# The numbers of docs/format.md, "Holders".
_OBJECT, _MODULE, _CLASS, _FUNCTION, _FRAME, _GENERATOR, _THREAD = range(7)
_UNKNOWN, _ATTRIBUTE, _KEY, _ELEMENT, _LOCAL, _CLOSURE, _DICTIONARY, _, _CALL, _KEY_ITSELF = range(10)

# What the agent says of a node: it is inside of another one, or an object.
_INSIDE = 0

# Entries of a dictionary whose keys are named. In a larger one, a name says nothing about the others.
_MOST_KEYS = 1000
# Characters of a key.
_LONGEST_KEY = 60
# Objects of PyPy that are looked through for one of Python, and steps from it.
_MOST_INNER, _DEEPEST = 20_000, 6
# A code object with this flag has variables of its own.
_CO_NEWLOCALS = 2


def _here() -> Any:
    """Returns an exception with a traceback."""
    try:
        raise Exception
    except Exception as error:
        return error


_ModuleType: Any = type(sys)
_FunctionType, _FrameType, _TracebackType = type(_here), type(sys._getframe()), type(_here().__traceback__)
_MethodType = type(_here().with_traceback)

_module_names = vars(_ModuleType)["__dict__"].__get__

# What the copy needs, which goes on in `go_on`.
_library: _Library | None = None
_with_keys = True


def take(library: _Library, reason: int, whatever: bool, with_keys: bool) -> str | None:
    """Takes a snapshot. Returns why there is none."""
    global _library, _with_keys
    _library, _with_keys = library, with_keys
    stats = gc._get_stats(False)  # type: ignore[attr-defined]
    used = getattr(stats, "total_arena_memory", 0) + getattr(stats, "total_rawmalloced_memory", 0)
    is_enabled = gc.isenabled()
    # No finalizer runs in the copy, and no handler of a signal that came just before: not even between its first two
    # steps.
    runs_handlers = _hold_signals()
    gc.disable()
    try:
        return library.snapshot(reason, whatever, used)
    finally:
        if is_enabled:
            gc.enable()
        if runs_handlers:
            _signals_enter()
            # This calls the handlers of signals that have come meanwhile, if nothing is blocked, too.
            _signal.pthread_sigmask(_signal.SIG_BLOCK, ())


def _hold_signals() -> bool:
    """Has PyPy call no handlers of signals. Returns whether this thread would call them."""
    try:
        _signals_exit()
    except RuntimeError:
        return False
    return True


def go_on() -> None:
    """Called after the allocation in which the copy was made: in the program, and in the copy, which ends here."""
    library = _library
    if library is None or not library.is_copy():
        return
    try:
        sys.settrace(None)
        sys.setprofile(None)
        library.copy_leave(_look(library))
    except BaseException as error:
        library.copy_fail(f"its objects could not be looked at ({type(error).__name__}: {error})")


def _look(library: _Library) -> str:
    """Returns a line for each node that has a name."""
    modules, classes, frames = _modules(), {}, _frames()
    for _, _, names in modules:
        for value in list(names.values()):
            if issubclass(type(value), type):
                classes[id(value)] = value
    roots = {id(module): module for _, module, _ in modules}
    roots.update((id(names), names) for _, _, names in modules)
    roots.update(classes)
    module_names = {id(names): name for name, _, names in modules}
    numbers = [
        number for thread, stack in frames for frame in stack for number in (2 * thread + 1, id(frame))
    ]
    # From here on, the number of each object that has one is its address.
    gc.collect_step()  # type: ignore[attr-defined]
    # The agent gets the dump, whatever the file is.
    gc._dump_rpy_heap(1)  # type: ignore[attr-defined]
    nodes = library.copy_graph(list(roots), numbers)
    known = {id(frame): frame for _, stack in frames for frame in stack}
    known.update(roots)
    return _Naming(nodes, known, module_names, {2 * thread + 1: thread for thread, _ in frames}).text()


def _modules() -> list[tuple[str, Any, dict[str, Any]]]:
    """Returns the name of each module, itself, and its dictionary."""
    found = []
    for name, module in list(sys.modules.items()):
        if issubclass(type(module), _ModuleType) and type(name) is str:
            names = _module_names(module)
            if type(names) is dict:
                found.append((name, module, names))
    return found


def _frames() -> list[tuple[int, list[FrameType]]]:
    """Returns the number of each thread in the operating system, and its frames, without this module's."""
    threading: Any = sys.modules.get("threading")
    native = {}
    if threading is not None:
        for ident, thread in list(threading._active.items()):
            native[ident] = getattr(thread, "_native_id", None)
    found = []
    for ident, top in sys._current_frames().items():
        stack = []
        frame: FrameType | None = top
        while frame is not None:
            if not str(frame.f_globals.get("__name__", "")).startswith("nthbyte."):
                stack.append(frame)
            frame = frame.f_back
        found.append((native.get(ident) or ident, stack))
    return found


class _Naming:
    """Finds names, from the roots down: the objects of Python, and how they refer to each other."""

    def __init__(
        self, nodes: list[int], known: dict[int, Any], modules: dict[int, str], threads: dict[int, int]
    ):
        self._objects: dict[int, Any] = {}
        self._modules = modules
        # How the object before it refers to an object, by the object's address.
        self._links: dict[int, int] = {}
        self._lines: list[str] = []
        # The objects of Python below each one, by their addresses.
        below: dict[int, dict[int, int]] = {}
        # For each node, the object of Python that it is inside of, or itself.
        around: list[int] = []
        for number in range(len(nodes) // 3):
            address, parent, seen = nodes[3 * number : 3 * number + 3]
            above = around[parent - 1] if parent else -1
            around.append(above if seen == _INSIDE else number)
            if seen == _INSIDE:
                continue
            if address in known:
                self._objects[number] = known[address]
                in_thread = above >= 0 and nodes[3 * above] in threads
                self._add(number, known[address], _CALL if in_thread else _UNKNOWN, "")
            elif address in threads:
                self._line(number, _THREAD, _UNKNOWN, None, str(threads[address]), "")
            if above >= 0:
                below.setdefault(above, {})[address] = number
        for number in range(len(around)):
            sought = below.get(number)
            if sought and number in self._objects:
                try:
                    self._go_down(self._objects[number], sought)
                except Exception:
                    # An object of an unknown kind: what it refers to has no names.
                    pass

    def text(self) -> str:
        return "\n".join(self._lines)

    def _go_down(self, of: Any, sought: dict[int, int]) -> None:
        """Names the references of an object that are sought."""
        references = _references(of)
        if id(of) in self._modules or self._links.get(id(of)) == _DICTIONARY:
            references = ((_ATTRIBUTE, str(name), value) for name, value in of.items())
        for link, name, value in references:
            number = sought.pop(id(value), None)
            if number is not None:
                self._found(number, value, link, name)
                if not sought:
                    return
        left = {address: number for address, number in sought.items() if number not in self._objects}
        if left:
            self._go_inside(of, left)

    def _found(self, number: int, value: Any, link: int, name: str) -> None:
        if number not in self._objects:
            self._objects[number] = value
            self._links[id(value)] = link
            self._add(number, value, link, name)

    def _go_inside(self, of: Any, sought: dict[int, int]) -> None:
        """Finds the sought objects by PyPy's own references, which have no names."""
        inner, seen = [of], 0
        for _ in range(_DEEPEST):
            level, inner = inner, []
            for one in level:
                for value in gc.get_rpy_referents(one):  # type: ignore[attr-defined]
                    seen += 1
                    if seen > _MOST_INNER:
                        return
                    if type(value) is gc.GcRef:  # type: ignore[attr-defined]
                        inner.append(value)
                        continue
                    number = sought.pop(id(value), None)
                    if number is not None:
                        is_local = _name_of(type(of)) == "_local" and type(value) is dict
                        self._found(number, value, _DICTIONARY if is_local else _UNKNOWN, "")
                        if not sought:
                            return

    def _add(self, number: int, value: Any, link: int, name: str) -> None:
        of = type(value)
        kind, own = _OBJECT, _name_of(of)
        if id(value) in self._modules:
            kind, own = _MODULE, self._modules[id(value)]
        elif issubclass(of, _ModuleType):
            names = _module_names(value)
            kind, own = _MODULE, self._modules.get(id(names), own)
        elif issubclass(of, type):
            kind, own = _CLASS, _name_of(value)
        elif of is _FunctionType:
            kind, own = _FUNCTION, value.__qualname__
        elif of is _FrameType:
            kind, own = _FRAME, _name_of_code(value.f_code)
        elif own in _FRAMES_OF and of.__module__ == "builtins":
            kind, own = _GENERATOR, value.__qualname__
        length = next((plain.__len__(value) for plain in _SIZED if issubclass(of, plain)), None)
        self._line(number, kind, link, length if kind == _OBJECT else None, own, name)

    def _line(self, number: int, kind: int, link: int, length: int | None, own: str, name: str) -> None:
        count = "" if length is None else length
        self._lines.append(f"{number}\t{kind}\t{link}\t{count}\t{_plain(own)}\t{_plain(name)}")


_SIZED = (dict, list, tuple, set, frozenset, deque)

# How the frame of a suspended function is called.
_FRAMES_OF = {"generator": "gi_frame", "coroutine": "cr_frame", "async_generator": "ag_frame"}

_type_name = type.__dict__["__name__"].__get__
_type_order = type.__dict__["__mro__"].__get__
_type_names = type.__dict__["__dict__"].__get__


def _name_of(of: type) -> str:
    name: str = _type_name(of)
    return name


def _name_of_code(code: CodeType) -> str:
    name: str = getattr(code, "co_qualname", code.co_name)
    return name


def _plain(text: str) -> str:
    """Returns a text without what ends a line or a part of one."""
    return "".join(one if one.isprintable() else " " for one in text)


def _references(of: Any) -> Iterator[tuple[int, str, Any]]:
    """Returns how an object refers to others: the kind of each reference, its name, and the object."""
    kind = type(of)
    if issubclass(kind, dict):
        yield from _items(of)
    elif issubclass(kind, (list, tuple)):
        yield from _elements(list.__iter__(of) if issubclass(kind, list) else tuple.__iter__(of))
    elif issubclass(kind, (set, frozenset)):
        for value in set.__iter__(of) if issubclass(kind, set) else frozenset.__iter__(of):
            yield _ELEMENT, "", value
    elif issubclass(kind, deque):
        yield from _elements(deque.__iter__(of))
    elif issubclass(kind, type):
        for name, value in _type_names(of).items():
            yield _ATTRIBUTE, str(name), value
        return
    elif kind is _FunctionType:
        for name, cell in zip(getattr(of.__code__, "co_freevars", ()), of.__closure__ or ()):
            yield from _cell(name, cell)
        for name in ("__defaults__", "__kwdefaults__"):
            value = getattr(of, name)
            yield _ATTRIBUTE, name, value
    elif kind is _MethodType:
        yield _ATTRIBUTE, "__self__", of.__self__
        yield _ATTRIBUTE, "__func__", of.__func__
    elif kind is _FrameType:
        yield from _variables(of)
    elif kind is _TracebackType:
        yield _ATTRIBUTE, "tb_frame", of.tb_frame
        yield _ATTRIBUTE, "tb_next", of.tb_next
    elif issubclass(kind, BaseException):
        for name in ("__traceback__", "__context__", "__cause__", "args"):
            yield _ATTRIBUTE, name, BaseException.__dict__[name].__get__(of)
    elif _type_name(kind) in _FRAMES_OF and kind.__module__ == "builtins":
        frame = getattr(of, _FRAMES_OF[_type_name(kind)])
        if frame is not None:
            yield from _variables(frame)
        return
    yield from _attributes(of, kind)


def _items(of: Any) -> Iterator[tuple[int, str, Any]]:
    count = dict.__len__(of)
    is_named = count <= _MOST_KEYS
    for key, value in dict.items(of):
        yield _KEY, _key(key) if is_named else "", value
        yield _KEY_ITSELF, "", key


def _elements(values: Iterator[Any]) -> Iterator[tuple[int, str, Any]]:
    for index, value in enumerate(values):
        yield _ELEMENT, str(index) if index < _MOST_KEYS else "", value


def _cell(name: str, cell: Any) -> Iterator[tuple[int, str, Any]]:
    try:
        yield _CLOSURE, name, cell.cell_contents
    except ValueError:
        # It is empty.
        pass


def _variables(frame: FrameType) -> Iterator[tuple[int, str, Any]]:
    if frame.f_code.co_flags & _CO_NEWLOCALS:
        for name, value in frame.f_locals.items():
            yield _LOCAL, name, value


def _attributes(of: Any, kind: type) -> Iterator[tuple[int, str, Any]]:
    """Returns the attributes of an instance: its dictionary's, and its slots'."""
    for base in _type_order(kind):
        for name, descriptor in list(_type_names(base).items()):
            plain = _type_name(type(descriptor))
            if name == "__dict__" and plain == "getset_descriptor":
                names = descriptor.__get__(of)
                if type(names) is dict:
                    yield _DICTIONARY, "", names
                    for attribute, value in names.items():
                        yield _ATTRIBUTE, str(attribute), value
            elif plain in ("member", "member_descriptor"):
                try:
                    value = descriptor.__get__(of)
                except AttributeError:
                    continue
                yield _ATTRIBUTE, name, value


def _key(key: Any) -> str:
    """Returns a key as Python writes it: texts, integers, classes. Of another object, its type."""
    kind = type(key)
    if not _with_keys:
        return ""
    if kind is str:
        cut = key[:_LONGEST_KEY].replace("\\", "\\\\").replace("'", "\\'")
        return f"'{cut}{'…' if len(key) > _LONGEST_KEY else ''}'"
    if kind is int and abs(key) < 1 << 60:
        return str(key)
    if issubclass(kind, type):
        return _name_of(key)
    if issubclass(kind, tuple):
        return f"tuple of {tuple.__len__(key)}"
    return _name_of(kind)
