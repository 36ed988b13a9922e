"""Sessions inside PyPy.

The agent samples in the collector; what it cannot find out by itself is told here: PyPy's own
``_vmprof`` is switched on, which walks stacks; the names of the collector's types are handed over;
and ``gc.hooks`` reports the steps of major collections.

The library is called through ``_cffi_backend``, which is built into PyPy: importing ``ctypes``
takes ten times as long. Both call C without the GIL, so the agent asks for a large object whenever
it needs the GIL: PyPy allocates with the GIL held.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from typing import Any, Callable

from nthbyte._agent import Agent, Config, Error, Result

# What the agent may ask for: see crates/agent/src/pypy/running.rs.
_SMALL, _LARGE_KINDS = 0, 1

# Without time samples the timer is stopped at once; _vmprof wants an interval below one second.
_NO_TIMER = 0.999


class PyPyAgent(Agent):
    """The agent of a PyPy."""

    def __init__(self, path: str):
        import _cffi_backend

        self._library = _Library(_cffi_backend, path)
        self._allocate = self._library.callback(_allocate)
        self._on = False
        self._hooks: _Hooks | None = None
        self._interval = _NO_TIMER
        os.register_at_fork(after_in_child=self._forked)

    def start(self, config: Config) -> None:
        """Starts a session. Raises Error if it cannot be had."""
        if self._on:
            raise Error("nthbyte is already running; stop it first")
        if config["native"]:
            raise Error("native frames cannot be recorded on PyPy; leave out --native")
        vmprof = _vmprof()
        if vmprof.is_enabled():
            raise Error("vmprof is profiling this program already; stop it first")
        hertz = config["cpu_hz"]
        self._interval = 1.0 / hertz if hertz and hertz > 1 else _NO_TIMER
        descriptor = self._library.prepare()
        try:
            vmprof.enable(descriptor, self._interval, 0, 0, 0, 0)
        except vmprof.VMProfError as error:
            self._library.finish()
            raise Error(f"PyPy's _vmprof cannot be switched on: {error}") from None
        try:
            self._begin(config, descriptor)
        except BaseException:
            vmprof.disable()
            self._library.finish()
            raise
        self._on = True

    def stop(self) -> Result:
        """Stops the session and returns what it recorded. Raises Error if none is running."""
        if not self._on:
            raise Error("nthbyte is not running: nothing to stop")
        self._on = False
        if self._hooks is not None:
            self._hooks.remove()
            self._hooks = None
        self._name_threads()
        answer = self._library.stop()
        vmprof = _vmprof()
        try:
            vmprof.disable()
        except vmprof.VMProfError:
            # The program has switched it off.
            pass
        self._library.finish()
        if answer is None:
            raise Error("nthbyte is not running: nothing to stop")
        result = json.loads(answer)
        return Result(
            result["path"],
            result["samples"],
            result["lost"],
            result["bytes_allocated"],
            tuple(result["notes"]),
        )

    def _begin(self, config: Config, descriptor: int) -> None:
        self._library.types(gc.get_typeids_z(), gc.get_typeids_list())
        self._show_classes()
        pypy = {
            "fd": descriptor,
            "allocate": self._library.address(self._allocate),
            "nursery": getattr(gc._get_stats(False), "nursery_size", None),  # type: ignore[attr-defined]
        }
        self._library.start(json.dumps({**config, "pypy": pypy}))
        self._hooks = _Hooks(self._library.collection)

    def _show_classes(self) -> None:
        """Shows the agent instances of each kind, so that it learns to tell their classes."""
        kinds: list[type] = [object, object, Exception, list, dict, tuple, str, int, float, set]
        instances = [_probe_class(kind, number) for number, kind in enumerate(kinds)]
        instances[0].first = instances[0].second = None
        # The identity of an object is the address that it has when it is old.
        numbers = [number for one in instances for number in (id(one), id(type(one)))]
        gc.collect_step()  # type: ignore[attr-defined]
        self._library.classes(numbers, [type(one).__qualname__ for one in instances])

    def _name_threads(self) -> None:
        threading: Any = sys.modules.get("threading")
        if threading is not None:
            for thread in threading.enumerate():
                if thread.native_id is not None:
                    self._library.thread(thread.native_id, thread.name)

    def _forked(self) -> None:
        """In the child of a fork ``_vmprof`` has closed its file: gives it another one."""
        if not self._on:
            return
        vmprof = _vmprof()
        descriptor = self._library.forked()
        if descriptor < 0:
            return
        try:
            vmprof.disable()
        except vmprof.VMProfError:
            # What it had not written is lost to it; the agent has read it.
            pass
        vmprof.enable(descriptor, self._interval, 0, 0, 0, 0)
        self._library.attach()


def _allocate(kind: int, size: int) -> None:
    """Allocates what the agent asks for, and drops it."""
    if kind == _SMALL:
        [object() for _ in range(10)]
    elif kind == _LARGE_KINDS:
        words = size // 8
        b"x" * size
        "x" * size
        bytearray(size)
        [None] * words
        [1] * words
        [1.0] * words
        (None,) * words
        dict.fromkeys(range(words))
    else:
        b"x" * size


def _probe_class(base: type, number: int) -> Any:
    """Returns an instance of a new class; its name is not its qualified name."""
    return type(f"Probe{number}", (base,), {"__qualname__": f"nthbyte.Probe{number}"})()


def _vmprof() -> Any:
    try:
        import _vmprof
    except ImportError:
        raise Error(
            "this PyPy was built without _vmprof, which walks the stack; use a PyPy from pypy.org or Debian"
        ) from None
    return _vmprof


class _Library:
    """The functions of the agent, called through ``_cffi_backend``."""

    def __init__(self, backend: Any, path: str):
        self._backend = backend
        try:
            library = backend.load_library(path, 2)
        except OSError as error:
            raise Error(f"cannot load the agent: {error}") from None
        void, self._int = backend.new_void_type(), backend.new_primitive_type("int")
        char, size = backend.new_primitive_type("char"), backend.new_primitive_type("size_t")
        u64, i64 = backend.new_primitive_type("uint64_t"), backend.new_primitive_type("int64_t")
        self._text = backend.new_pointer_type(char)
        self._array = backend.new_array_type(self._text, None)
        numbers = backend.new_pointer_type(backend.new_primitive_type("uint32_t"))
        self._numbers = backend.new_array_type(numbers, None)
        self._size = size
        self._allocate = backend.new_function_type((self._int, size), void)

        def function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
            loaded: Callable[..., Any] = library.load_function(
                backend.new_function_type(arguments, result), f"nthbyte_{name}"
            )
            return loaded

        self._start = function("start", self._int, self._text, self._text, size)
        self._stop = function("stop", self._int, self._text, size)
        self._prepare = function("pypy_prepare", self._int, self._text, size)
        self._types = function("pypy_types", void, self._text, size, numbers, size)
        addresses = backend.new_pointer_type(size)
        self._addresses = backend.new_array_type(addresses, None)
        self._classes = function("pypy_classes", self._int, addresses, size, self._text)
        self.collection = function("pypy_collection", void, self._int, u64, i64, i64)
        self._thread = function("pypy_thread", void, u64, self._text)
        self.forked = function("pypy_forked", self._int)
        self.attach = function("pypy_attach", void)
        self.finish = function("pypy_finish", void)

    def callback(self, function: Callable[[int, int], None]) -> Any:
        """Returns a C function that calls a Python one."""
        return self._backend.callback(self._allocate, function, None, None)

    def address(self, function: Any) -> int:
        """Returns the address of a C function."""
        return int(self._backend.cast(self._size, function))

    def prepare(self) -> int:
        """Returns the descriptor for _vmprof. Raises Error if there can be no session now."""
        message = self._backend.newp(self._array, 1024)
        descriptor: int = self._prepare(message, 1024)
        if descriptor < 0:
            raise Error(self._string(message))
        return descriptor

    def types(self, names: bytes, numbers: list[int]) -> None:
        """Hands over what ``gc.get_typeids_z`` and ``gc.get_typeids_list`` return."""
        import zlib

        text = zlib.decompress(names)
        self._types(
            self._backend.from_buffer(self._array, text),
            len(text),
            self._backend.newp(self._numbers, numbers),
            len(numbers),
        )

    def classes(self, addresses: list[int], names: list[str]) -> bool:
        """Shows instances and their classes, by turns, and the classes' names. Whether that told anything."""
        return bool(
            self._classes(
                self._backend.newp(self._addresses, addresses),
                len(names),
                self._backend.newp(self._array, b"".join(name.encode() + b"\0" for name in names)),
            )
        )

    def start(self, config: str) -> None:
        """Starts a session. Raises Error if it cannot be had."""
        message = self._backend.newp(self._array, 1024)
        if self._start(self._c_string(config), message, 1024):
            raise Error(self._string(message))

    def stop(self) -> str | None:
        """Stops the session and returns its result as JSON, None if there is none."""
        length = 64 * 1024
        answer = self._backend.newp(self._array, length)
        return None if self._stop(answer, length) else self._string(answer)

    def thread(self, number: int, name: str) -> None:
        """Names a thread."""
        self._thread(number, self._c_string(name))

    def _c_string(self, text: str) -> Any:
        return self._backend.newp(self._array, text.encode(errors="replace"))

    def _string(self, text: Any) -> str:
        content: bytes = self._backend.string(text)
        return content.decode(errors="replace")


class _Hooks:
    """Listens to ``gc.hooks`` for major collections; what the program listens to is passed on."""

    _WHOLE = 4

    def __init__(self, tell: Callable[[int, int, int, int], None]):
        self._tell = tell
        self._hooks: Any = gc.hooks  # type: ignore[attr-defined]
        self._step = self._hooks.on_gc_collect_step
        self._collect = self._hooks.on_gc_collect
        self._hooks.on_gc_collect_step = self._on_step
        self._hooks.on_gc_collect = self._on_collect

    def remove(self) -> None:
        """Stops to listen, unless the program has put in something of its own."""
        if self._hooks.on_gc_collect_step == self._on_step:
            self._hooks.on_gc_collect_step = self._step
        if self._hooks.on_gc_collect == self._on_collect:
            self._hooks.on_gc_collect = self._collect

    def _on_step(self, stats: Any) -> None:
        self._tell(stats.oldstate, int(stats.duration * 1e9), -1, -1)
        if self._step is not None:
            self._step(stats)

    def _on_collect(self, stats: Any) -> None:
        self._tell(
            self._WHOLE,
            0,
            -1,
            stats.arenas_bytes + stats.rawmalloc_bytes_after,
        )
        if self._collect is not None:
            self._collect(stats)
