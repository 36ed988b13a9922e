"""Sessions inside PyPy.

The agent samples in the collector. This module provides what the agent cannot find out itself: it enables
PyPy's own ``_vmprof``, which walks stacks, and passes the names of the collector's types, a few instances of known
classes, and the memory totals.

This module calls the library through ``_cffi_backend``, which is built into PyPy: the import of ``ctypes`` takes
ten times as long. Both call C without the GIL. When the agent needs the GIL, it makes :func:`_allocate` allocate a
large object, because PyPy allocates with the GIL held.

``crates/pypy/src/control/entry_points.rs`` documents the order of the calls.
"""

from __future__ import annotations

import gc
import os
import sys

from nthbyte._agent import (
    NATIVE_LIBRARY,
    Agent,
    Error,
    as_utf8,
    claim_request,
    from_utf8,
    process_labels,
    read_mark,
    read_result,
    said_request,
    to_json,
    why_no_native,
    with_utf8_paths,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any, Callable

    from nthbyte._agent import Mark, Result
    from nthbyte._config import Config
    from nthbyte._pypy_gc_hooks import MinorHook

# The agent's requests to `_allocate`: `Request` in crates/pypy/src/control/python.rs.
_SMALL, _LARGE_OF_EACH_KIND, _SNAPSHOT = 0, 1, 3

# Why a snapshot is taken: docs/format.md, "Holders".
_END, _CALL, _SIGNAL = 0, 2, 3

# A signal that the C library keeps for itself: the agent calls its handler, the kernel knows none. And the last one
# that a program would take, with which the agent learns how handlers are called: `crates/pypy/src/holders/pending.rs`.
_IN_SECRET, _TO_LEARN = 32, 64

# PyPy closes a library without references, but the hooks still call this one.
_RTLD_NOW, _RTLD_NODELETE = 0x2, 0x1000

# Size in bytes of an object that is too large for PyPy's nursery.
_LARGE = 300_000
# The agent finds the memory totals after so many more reports, if it can.
_MORE_REPORTS = 4

# Room for a path and an error that names it (PATH_MAX of Linux is 4,096).
_LONGEST_PATH = 8192

# The seconds between the ticks of _vmprof's own timer, which it never gets: it requires an interval below one second.
_NO_TIMER = 0.999


class PyPyAgent(Agent):
    """The agent for PyPy."""

    def __init__(self, path: str):
        import _cffi_backend

        self._library = _Library(_cffi_backend, path)
        self._on = False
        # The module that walks stacks. It is kept, because the program may end where nothing can be imported.
        self._vmprof: Any = None
        # Passed to the agent once: types and classes never move. The instances must live until the first minor
        # collection of the session, when the agent reads them.
        self._probes: list[Any] | None = None
        self._minor_hook: MinorHook | None = None
        self._notes: tuple[str, ...] = ()
        # Whether snapshots of who holds what are taken, and whether they have the keys of dictionaries.
        self._holders, self._with_keys = "never", True
        # Whether the agent can have snapshots taken by itself; None if that was not tried.
        self._is_asked: bool | None = None
        os.register_at_fork(after_in_child=self._forked)

    def load_native(self) -> str | None:
        """Makes native memory available. Returns the reason if that is not possible."""
        return why_no_native(self._library.load_native(NATIVE_LIBRARY))

    def page_tables_problem(self) -> str | None:
        """See :meth:`Agent.page_tables_problem`."""
        return self._library.page_tables_problem()

    def start(self, config: Config) -> None:
        """Starts a session. Raises Error if it cannot start."""
        if self._on:
            raise Error("nthbyte is running already; call nthbyte.stop() first")
        self._holders, self._with_keys = config["holders"], not config["no_names"]
        if self._holders != "never":
            _load_holders()
            self._answer()
        try:
            self._start_hooked(config)
        except _Refused as refusal:
            self._start_gc_hooks(config, str(refusal))
        self._on = True

    def _start_hooked(self, config: Config) -> None:
        vmprof = self._vmprof = _vmprof()
        if vmprof.is_enabled():
            raise Error("vmprof is profiling this program already; stop it first")
        descriptor = self._library.prepare_vmprof()
        try:
            vmprof.enable(descriptor, _NO_TIMER, 0, 0, 0, 0)
        except vmprof.VMProfError as error:
            self._library.release_vmprof()
            raise Error(f"PyPy's _vmprof cannot be switched on: {error}") from None
        try:
            self._begin(config)
        except BaseException:
            vmprof.disable()
            self._library.release_vmprof()
            raise

    def _start_gc_hooks(self, config: Config, refusal: str) -> None:
        """Samples at every k-th minor collection, because the agent cannot hook the collector."""
        from nthbyte._pypy_gc_hooks import MinorHook
        from nthbyte._size import CONSTANT_PERIOD, format_size

        if config["cpu_hz"]:
            raise Error(f"{refusal}; so no time samples can be had: leave out --cpu")
        note = f"{refusal}; sampled through gc.hooks instead"
        notes = [note, "native memory was not recorded"] if config["native"] else [note]
        if config["auto"]:
            config = {**config, "auto": False, "period": CONSTANT_PERIOD}
            notes.append(f"the period cannot follow the program there: it is {format_size(CONSTANT_PERIOD)}")
        pypy = {"method": "gc-hooks", "nursery": _nursery_size(), "notes": notes}
        self._library.start(to_json({**with_utf8_paths(config), "native": False, "pypy": pypy}))
        self._minor_hook = MinorHook(self._library.report_minors, self._library.minors_per_sample())
        self._notes = tuple(notes)

    def claim(self, path: str, force: bool, kept: Collection[str] = ()) -> str:
        """See :meth:`Agent.claim`."""
        return from_utf8(self._library.claim(claim_request(path, force, kept)))

    def settle(self, has_begun: bool) -> None:
        """See :meth:`Agent.settle`."""
        self._library.settle(has_begun)

    def free_name(self, path: str) -> str:
        """See :meth:`Agent.free_name`."""
        return from_utf8(self._library.free_name(as_utf8(path)))

    def say(self, what: str, **details: Any) -> str:
        """See :meth:`Agent.say`."""
        return from_utf8(self._library.say(said_request(what, details)))

    def label_process(self, **labels: str) -> None:
        """See :meth:`Agent.label_process`."""
        self._library.label_process(process_labels(labels))

    def snapshot(self, force: bool) -> str | None:
        """See :meth:`Agent.snapshot`."""
        return self._snapshot(_CALL, force or self._holders == "always")

    def snapshot_at_signal(self) -> None:
        """See :meth:`Agent.snapshot_at_signal`."""
        if self._holders != "never":
            self._snapshot(_SIGNAL, self._holders == "always")

    def _answer(self) -> None:
        """Has the agent call :meth:`_on_due` in the main thread when a snapshot is due, if that is possible."""
        if self._is_asked is not None:
            return
        import _signal  # type: ignore[import-not-found]

        try:
            before = _signal.getsignal(_TO_LEARN)
            if before is not _signal.SIG_DFL:
                return
            _signal.signal(_IN_SECRET, self._on_due)
            try:
                _signal.signal(_TO_LEARN, self._on_due)
                self._is_asked = bool(self._library.learn_signals(_TO_LEARN))
            finally:
                _signal.signal(_TO_LEARN, before)
        except ValueError:
            # This is not the main thread: the next session may begin there.
            pass

    def _on_due(self, signal: int, frame: Any) -> None:
        due = self._library.snapshot_due()
        if due and self._on and self._holders != "never":
            self._snapshot((due & 255) - 1, due > 255 or self._holders == "always")

    def snapshot_seconds(self) -> float:
        """See :meth:`Agent.snapshot_seconds`."""
        return int(self._library.snapshot_nanos()) / 1e9

    def _snapshot(self, reason: int, whatever: bool) -> str | None:
        why: str | None = _load_holders().take(self._library, reason, whatever, self._with_keys)
        return why

    def has_profile(self) -> bool:
        """Whether this process has a profile. The child of a fork has none before its first recording."""
        return bool(self._library.has_profile())

    def clock_start(self) -> int | None:
        """See :meth:`Agent.clock_start`."""
        return int(self._library.clock_start()) or None

    def mark(self) -> Mark | None:
        """See :meth:`Agent.mark`."""
        return read_mark(self._library.mark())

    def flush(self) -> bool:
        """See :meth:`Agent.flush`."""
        return bool(self._library.flush())

    def stop(self) -> Result:
        """Stops the session and returns what it recorded. Raises Error if none is running."""
        if not self._on:
            raise Error("nthbyte is not running: nothing to stop")
        self._on = False
        if self._minor_hook is not None:
            self._minor_hook.remove()
            self._minor_hook = None
            answer = self._library.stop()
        else:
            answer = self._stop_hooked()
        notes, self._notes = self._notes, ()
        return read_result(answer, notes)

    def _stop_hooked(self) -> str | None:
        if self._holders != "never":
            # If there is none, the profile says why.
            self._snapshot(_END, self._holders == "always")
        self._name_threads()
        answer = self._library.stop()
        if self._library.owns_vmprof():
            try:
                self._vmprof.disable()
            except self._vmprof.VMProfError:
                # _vmprof is not enabled: this is the child of a fork, and enabling it again has failed.
                pass
        self._library.release_vmprof()
        return answer

    def _begin(self, config: Config) -> None:
        first = self._probes is None
        if first:
            self._report_totals()
            self._library.set_types(gc.get_typeids_z(), gc.get_typeids_list())
            self._probes = self._make_probes()
            # Both totals differ from the first report: `id` reserves memory among the old objects for each probe.
            large = b"x" * _LARGE
            self._report_totals()
            del large
        pypy = {"nursery": _nursery_size()}
        try:
            self._library.start(to_json({**with_utf8_paths(config), "pypy": pypy}))
        except Error as error:
            if "cannot sample inside" in str(error):
                raise _Refused(str(error)) from None
            raise
        if first:
            # The session began with a collection, which freed the large object.
            for _ in range(_MORE_REPORTS):
                if self._report_totals():
                    break
                # Other memory was reserved meanwhile, so that a total and its peak are still the same.
                large = b"x" * _LARGE
                del large
                gc.collect_step()  # type: ignore[attr-defined]

    def _make_probes(self) -> list[Any]:
        """Creates an instance of each kind and passes them to the agent, which learns from them how to find a class."""
        kinds: list[type] = [object, object, Exception, list, dict, tuple, str, int, float, set]
        instances = [_probe_class(kind, number) for number, kind in enumerate(kinds)]
        instances[0].first = instances[0].second = None
        # The `id` of an object is its address once it is old.
        numbers = [number for one in instances for number in (id(one), id(type(one)))]
        self._library.set_probe_instances(numbers, [type(one).__qualname__ for one in instances])
        return instances

    def _report_totals(self) -> bool:
        """Reports the memory totals. Returns whether the agent knows now where the collector keeps them.

        It needs three reports at least.
        """
        stats = gc._get_stats(False)  # type: ignore[attr-defined]
        try:
            large = stats.total_rawmalloced_memory
            arenas = stats.total_allocated_memory - stats.nursery_size - large
            return bool(self._library.report_totals(stats.total_arena_memory, large, arenas))
        except AttributeError:
            # A PyPy without these attributes: the profile has no totals.
            return True

    def _name_threads(self) -> None:
        threading: Any = sys.modules.get("threading")
        if threading is not None:
            for thread in threading.enumerate():
                if thread.native_id is not None:
                    self._library.name_thread(thread.native_id, thread.name)

    def _forked(self) -> None:
        """Enables ``_vmprof`` again in the child of a fork, where it has closed its file."""
        if not self._on or self._minor_hook is not None:
            return
        vmprof = self._vmprof
        descriptor = self._library.reopen_vmprof()
        if descriptor < 0:
            return
        try:
            vmprof.disable()
        except vmprof.VMProfError:
            # _vmprof could not write its remaining names. The agent has already read them.
            pass
        vmprof.enable(descriptor, _NO_TIMER, 0, 0, 0, 0)
        self._library.attach_vmprof()


class _Refused(Exception):
    """The agent cannot hook this PyPy. A session through ``gc.hooks`` is still possible."""


def _nursery_size() -> int | None:
    return getattr(gc._get_stats(False), "nursery_size", None)  # type: ignore[attr-defined]


def _allocate(request: int, size: int) -> None:
    """Allocates the objects that the agent requests, and drops them. ``size`` is in bytes."""
    if request == _SMALL:
        [object() for _ in range(10)]
    elif request == _LARGE_OF_EACH_KIND:
        # Objects of bytes, of references and of numbers.
        words = size // 8
        b"x" * size
        bytearray(size)
        [None] * words
        [1] * words
        (None,) * words
        # The last object is larger (`GilTrap::ROOM`): it shows the agent that no exception ended this function early.
        b"x" * (size + 64)
    else:
        b"x" * size
        if request == _SNAPSHOT:
            _load_holders().go_on()


# The module that takes snapshots. It is kept, because the program may end where nothing can be imported.
_holders_module: Any = None


def _load_holders() -> Any:
    global _holders_module
    if _holders_module is None:
        from nthbyte import _pypy_holders

        _holders_module = _pypy_holders
    return _holders_module


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
    """Calls the agent's functions through ``_cffi_backend``. Their names begin with ``nthbyte_pypy_``."""

    def __init__(self, backend: Any, path: str):
        """Raises OSError if the library cannot be loaded."""
        self._backend = backend
        library = backend.load_library(path, _RTLD_NOW | _RTLD_NODELETE)
        void, self._int = backend.new_void_type(), backend.new_primitive_type("int")
        char, size = backend.new_primitive_type("char"), backend.new_primitive_type("size_t")
        u64, i64 = backend.new_primitive_type("uint64_t"), backend.new_primitive_type("int64_t")
        self._text = backend.new_pointer_type(char)
        self._array = backend.new_array_type(self._text, None)
        numbers = backend.new_pointer_type(backend.new_primitive_type("uint32_t"))
        self._numbers = backend.new_array_type(numbers, None)

        def function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
            loaded: Callable[..., Any] = library.load_function(
                backend.new_function_type(arguments, result), f"nthbyte_pypy_{name}"
            )
            return loaded

        addresses = backend.new_pointer_type(size)
        self._addresses = backend.new_array_type(addresses, None)
        self._can_hook = function("can_hook", self._int)
        self._prepare_vmprof = function("prepare_vmprof", self._int, self._text, size)
        self._set_types = function("set_types", void, self._text, size, numbers, size)
        self._set_probe_instances = function("set_probe_instances", void, addresses, size, self._text)
        self.report_totals = function("report_totals", self._int, size, size, size)
        self._name_thread = function("name_thread", void, u64, self._text)
        self.define_labels = function("define_labels", backend.new_primitive_type("uint32_t"), self._text)
        self.set_labels = function("set_labels", void, backend.new_primitive_type("uint32_t"))
        self._label_process = function("label_process", void, self._text)
        self._load_native = function("load_native", self._int, self._text, self._text, size)
        self._page_tables_problem = function("page_tables_problem", self._int, self._text, size)
        self._claim = function("claim", self._int, self._text, self._text, size)
        self.settle = function("settle", void, self._int)
        self._free_name = function("free_name", void, self._text, self._text, size)
        self._start = function("start", self._int, self._text, self._text, size)
        self.has_profile = function("has_profile", self._int)
        self.clock_start = function("clock_start", u64)
        self._mark = function("mark", self._int, self._text, size)
        self.flush = function("flush", self._int)
        self._stop = function("stop", self._text)
        self._say = function("say", self._text, self._text)
        self._release_text = function("release_text", void, self._text)
        self.reopen_vmprof = function("reopen_vmprof", self._int)
        self.attach_vmprof = function("attach_vmprof", void)
        self.owns_vmprof = function("owns_vmprof", self._int)
        self.release_vmprof = function("release_vmprof", void)
        self.minors_per_sample = function("minors_per_sample", self._int)
        self._report_minors = function("report_minors", void, u64, u64, i64, u64, self._text)
        number = backend.new_primitive_type("uint32_t")
        self._snapshot = function("snapshot", self._int, number, self._int, u64, self._text, size)
        self.snapshot_nanos = function("snapshot_nanos", u64)
        self.learn_signals = function("learn_signals", self._int, self._int)
        self.snapshot_due = function("snapshot_due", self._int)
        self._is_copy = function("is_copy", self._int)
        self._copy_graph = function("copy_graph", size, addresses, size, addresses, size)
        self._copy_nodes = function("copy_nodes", void, addresses, size)
        self._copy_leave = function("copy_leave", void, self._text)
        self._copy_fail = function("copy_fail", void, self._text)

    def snapshot(self, reason: int, whatever: bool, used: int) -> str | None:
        """Takes a snapshot of who holds what. Returns why there is none."""
        message = self._backend.newp(self._array, 1024)
        if self._snapshot(reason, whatever, used, message, 1024):
            return self._string(message)
        return None

    def is_copy(self) -> bool:
        """Returns whether this process is a copy that shall look at its objects."""
        return bool(self._is_copy())

    def copy_graph(self, roots: list[int], frames: list[int]) -> list[int]:
        """Returns three numbers for each object that leads to samples: see the function of the agent."""
        count = self._copy_graph(
            self._backend.newp(self._addresses, roots),
            len(roots),
            self._backend.newp(self._addresses, frames),
            len(frames) // 2,
        )
        nodes = self._backend.newp(self._addresses, 3 * count)
        self._copy_nodes(nodes, count)
        return list(nodes)

    def copy_leave(self, names: str) -> None:
        """Ends the copy with what was found."""
        self._copy_leave(self.c_string(names))

    def copy_fail(self, why: str) -> None:
        """Ends the copy without a result."""
        self._copy_fail(self.c_string(why))

    def report_minors(self, count: int, nanoseconds: int, used: int, thread: int, stack: str) -> None:
        """Reports minor collections, in a session through ``gc.hooks``."""
        self._report_minors(count, nanoseconds, used, thread, self.c_string(stack))

    def prepare_vmprof(self) -> int:
        """Returns the descriptor for _vmprof. Raises Error if no session is possible now."""
        if not self._can_hook():
            raise _Refused("PyPy cannot be hooked on this processor, only on x86-64 and ARM64")
        message = self._backend.newp(self._array, 1024)
        descriptor: int = self._prepare_vmprof(message, 1024)
        if descriptor < 0:
            raise Error(self._string(message))
        return descriptor

    def set_types(self, names: bytes, numbers: list[int]) -> None:
        """Passes the results of ``gc.get_typeids_z`` and ``gc.get_typeids_list`` to the agent."""
        self._set_types(
            self._backend.from_buffer(self._array, names),
            len(names),
            self._backend.newp(self._numbers, numbers),
            len(numbers),
        )

    def set_probe_instances(self, addresses: list[int], names: list[str]) -> None:
        """Passes each instance's address, followed by its class's, and the classes' names."""
        self._set_probe_instances(
            self._backend.newp(self._addresses, addresses),
            len(names),
            self._backend.newp(self._array, "\0".join([*names, ""]).encode()),
        )

    def load_native(self, path: str) -> str | None:
        """Makes native memory available. Returns the reason if that is not possible."""
        message = self._backend.newp(self._array, 1024)
        if self._load_native(self._backend.newp(self._array, os.fsencode(path)), message, 1024):
            return self._string(message)
        return None

    def page_tables_problem(self) -> str | None:
        """Returns why the page tables cannot be read."""
        message = self._backend.newp(self._array, 1024)
        return self._string(message) if self._page_tables_problem(message, 1024) else None

    def claim(self, request: str) -> str:
        """Claims a profile's file, and returns its path. Raises Error if it cannot be made."""
        answer = self._backend.newp(self._array, _LONGEST_PATH)
        is_refused = self._claim(self.c_string(request), answer, _LONGEST_PATH)
        if is_refused:
            raise Error(self._string(answer))
        return self._string(answer)

    def label_process(self, text: str) -> None:
        """Labels the whole process."""
        self._label_process(self.c_string(text))

    def free_name(self, path: str) -> str:
        """Returns the name that a claim would take now that replaces nothing."""
        answer = self._backend.newp(self._array, _LONGEST_PATH)
        self._free_name(self.c_string(path), answer, _LONGEST_PATH)
        return self._string(answer)

    def start(self, config: str) -> None:
        """Starts a session. Raises Error if it cannot start."""
        message = self._backend.newp(self._array, 1024)
        if self._start(self.c_string(config), message, 1024):
            raise Error(self._string(message))

    def mark(self) -> str | None:
        """Returns what the session has recorded so far, as text; None if no session is running."""
        answer = self._backend.newp(self._array, _LONGEST_PATH)
        return self._string(answer) if self._mark(answer, _LONGEST_PATH) else None

    def stop(self) -> str | None:
        """Stops the session and returns its result as text; None if no session is running."""
        outcome = self._stop()
        return self._taken(outcome) if outcome else None

    def say(self, request: str) -> str:
        """Returns the line at the end, or one of its like."""
        return self._taken(self._say(self.c_string(request)))

    def _taken(self, text: Any) -> str:
        """Returns a text of the library, which frees it."""
        try:
            return self._string(text)
        finally:
            self._release_text(text)

    def name_thread(self, number: int, name: str) -> None:
        """Names a thread."""
        self._name_thread(number, self.c_string(name))

    def c_string(self, text: str) -> Any:
        """Returns a text in UTF-8, with a zero byte at its end, for a function of the library."""
        return self._backend.newp(self._array, text.encode(errors="replace"))

    def _string(self, text: Any) -> str:
        content: bytes = self._backend.string(text)
        return content.decode(errors="replace")
