"""Sessions inside PyPy.

The agent samples in the collector; what it cannot find out by itself is told here: PyPy's own
``_vmprof`` is switched on, which walks stacks, and the names of the collector's types are handed
over.

The library is called through ``_cffi_backend``, which is built into PyPy: importing ``ctypes``
takes ten times as long. Both call C without the GIL, so the agent asks for a large object whenever
it needs the GIL: PyPy allocates with the GIL held.
"""

from __future__ import annotations

import gc
import os
import sys

from nthbyte._agent import Agent, Error, read_result, to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from nthbyte._agent import Result
    from nthbyte._config import Config
    from nthbyte._pypy_fallback import MinorHook

# What the agent may ask for: see crates/pypy/src/hook/running.rs.
_SMALL, _LARGE_KINDS = 0, 1

# PyPy closes a library that nothing refers to; code that is hooked in must stay.
_RTLD_NOW, _RTLD_NODELETE = 0x2, 0x1000

# Bytes of an object that is not born in the nursery.
_LARGE = 300_000

# Without time samples the timer is stopped at once; _vmprof wants an interval below one second.
_NO_TIMER = 0.999


class PyPyAgent(Agent):
    """The agent of a PyPy."""

    def __init__(self, path: str):
        import _cffi_backend

        self._library = _Library(_cffi_backend, path)
        self._on = False
        # Types and classes lie where they lie for as long as the process lives. What was shown of them
        # has to live until the collector has moved it.
        self._shown: list[Any] | None = None
        self._fallback: MinorHook | None = None
        self._notes: tuple[str, ...] = ()
        self._interval = _NO_TIMER
        os.register_at_fork(after_in_child=self._forked)

    def start(self, config: Config) -> None:
        """Starts a session. Raises Error if it cannot be had."""
        if self._on:
            raise Error("nthbyte is already running; stop it first")
        if config["native"]:
            raise Error("native frames cannot be recorded on PyPy; leave out --native")
        try:
            self._start_hooked(config)
        except _Refused as refusal:
            self._start_fallback(config, str(refusal))
        self._on = True

    def _start_hooked(self, config: Config) -> None:
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
            self._begin(config)
        except BaseException:
            vmprof.disable()
            self._library.finish()
            raise

    def _start_fallback(self, config: Config, refusal: str) -> None:
        """Samples at every k-th minor collection: what remains where the hook cannot be placed."""
        from nthbyte._pypy_fallback import MinorHook

        if config["cpu_hz"]:
            raise Error(f"{refusal}; so no time samples can be had: leave out --cpu")
        note = f"{refusal}; sampled through gc.hooks instead"
        pypy = {"method": "gc-hooks", "nursery": _nursery_size(), "notes": [note]}
        self._library.start(to_json({**config, "pypy": pypy}))
        self._fallback = MinorHook(self._library.minor, self._library.minors_a_sample())
        self._notes = (note,)

    def stop(self) -> Result:
        """Stops the session and returns what it recorded. Raises Error if none is running."""
        if not self._on:
            raise Error("nthbyte is not running: nothing to stop")
        self._on = False
        if self._fallback is not None:
            self._fallback.remove()
            self._fallback = None
            answer = self._library.stop()
        else:
            answer = self._stop_hooked()
        notes, self._notes = self._notes, ()
        return read_result(answer, notes)

    def _stop_hooked(self) -> str | None:
        self._name_threads()
        answer = self._library.stop()
        if self._library.has_vmprof():
            vmprof = _vmprof()
            try:
                vmprof.disable()
            except vmprof.VMProfError:
                # In the child of a fork that has not got a file for it.
                pass
        self._library.finish()
        return answer

    def _begin(self, config: Config) -> None:
        first = self._shown is None
        if first:
            self._tell_totals()
            self._library.types(gc.get_typeids_z(), gc.get_typeids_list())
            self._shown = self._show_classes()
            # Both totals have changed now: what has an identity has a place among the old objects.
            large = b"x" * _LARGE
            self._tell_totals()
            del large
        pypy = {"nursery": _nursery_size()}
        try:
            self._library.start(to_json({**config, "pypy": pypy}))
        except Error as error:
            if "cannot sample inside" in str(error):
                raise _Refused(str(error)) from None
            raise
        if first:
            # The session began with a collection, which has freed the large object.
            self._tell_totals()

    def _show_classes(self) -> list[Any]:
        """Shows the agent instances of each kind, so that it learns to tell their classes; returns them."""
        kinds: list[type] = [object, object, Exception, list, dict, tuple, str, int, float, set]
        instances = [_probe_class(kind, number) for number, kind in enumerate(kinds)]
        instances[0].first = instances[0].second = None
        # The identity of an object is the address that it has when it is old.
        numbers = [number for one in instances for number in (id(one), id(type(one)))]
        self._library.classes(numbers, [type(one).__qualname__ for one in instances])
        return instances

    def _tell_totals(self) -> None:
        """Tells the agent the memory totals; a few times, and it knows where the collector keeps them."""
        stats = gc._get_stats(False)  # type: ignore[attr-defined]
        try:
            alone = stats.total_rawmalloced_memory
            arenas = stats.total_allocated_memory - stats.nursery_size - alone
            self._library.totals(stats.total_arena_memory, alone, arenas)
        except AttributeError:
            # Then the profile goes without them.
            pass

    def _name_threads(self) -> None:
        threading: Any = sys.modules.get("threading")
        if threading is not None:
            for thread in threading.enumerate():
                if thread.native_id is not None:
                    self._library.thread(thread.native_id, thread.name)

    def _forked(self) -> None:
        """In the child of a fork ``_vmprof`` has closed its file: gives it another one."""
        if not self._on or self._fallback is not None:
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


class _Refused(Exception):
    """The agent will not hook this PyPy."""


def _nursery_size() -> int | None:
    return getattr(gc._get_stats(False), "nursery_size", None)  # type: ignore[attr-defined]


def _allocate(kind: int, size: int) -> None:
    """Allocates what the agent asks for, and drops it."""
    if kind == _SMALL:
        [object() for _ in range(10)]
    elif kind == _LARGE_KINDS:
        # With references in them, and without.
        words = size // 8
        b"x" * size
        bytearray(size)
        [None] * words
        [1] * words
        (None,) * words
        # The last, told from the others by its size (`Trap::ROOM`): nothing has interrupted this.
        b"x" * (size + 64)
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
            library = backend.load_library(path, _RTLD_NOW | _RTLD_NODELETE)
        except OSError as error:
            raise Error(f"cannot load the agent: {error}") from None
        void, self._int = backend.new_void_type(), backend.new_primitive_type("int")
        char, size = backend.new_primitive_type("char"), backend.new_primitive_type("size_t")
        u64, i64 = backend.new_primitive_type("uint64_t"), backend.new_primitive_type("int64_t")
        self._text = backend.new_pointer_type(char)
        self._array = backend.new_array_type(self._text, None)
        numbers = backend.new_pointer_type(backend.new_primitive_type("uint32_t"))
        self._numbers = backend.new_array_type(numbers, None)

        def function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
            loaded: Callable[..., Any] = library.load_function(
                backend.new_function_type(arguments, result), f"nthbyte_{name}"
            )
            return loaded

        self._start = function("start", self._int, self._text, self._text, size)
        self._stop = function("stop", self._int, self._text, size)
        self._minor = function("pypy_minor", void, u64, u64, i64, u64, self._text)
        self.minors_a_sample = function("pypy_minors_a_sample", self._int)
        if not self._has_hook(library):
            return
        self._prepare = function("pypy_prepare", self._int, self._text, size)
        self._types = function("pypy_types", void, self._text, size, numbers, size)
        addresses = backend.new_pointer_type(size)
        self._addresses = backend.new_array_type(addresses, None)
        self._classes = function("pypy_classes", void, addresses, size, self._text)
        self.totals = function("pypy_totals", void, size, size, size)
        self._thread = function("pypy_thread", void, u64, self._text)
        self.forked = function("pypy_forked", self._int)
        self.attach = function("pypy_attach", void)
        self.has_vmprof = function("pypy_has_vmprof", self._int)
        self.finish = function("pypy_finish", void)

    def _has_hook(self, library: Any) -> bool:
        """Whether the agent was built for a machine on which it can hook PyPy."""
        try:
            library.load_function(self._backend.new_function_type((), self._int), "nthbyte_pypy_forked")
        except AttributeError:
            return False
        return True

    def minor(self, count: int, nanoseconds: int, used: int, thread: int, stack: str) -> None:
        """Tells of minor collections."""
        self._minor(count, nanoseconds, used, thread, self._c_string(stack))

    def prepare(self) -> int:
        """Returns the descriptor for _vmprof. Raises Error if there can be no session now."""
        if not hasattr(self, "_prepare"):
            raise _Refused("this machine is not x86-64 Linux, where PyPy can be hooked")
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

    def classes(self, addresses: list[int], names: list[str]) -> None:
        """Shows instances and their classes, by turns, and the classes' names."""
        self._classes(
            self._backend.newp(self._addresses, addresses),
            len(names),
            self._backend.newp(self._array, "\0".join([*names, ""]).encode()),
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
