"""What works with this interpreter, found out by recording with it: see ``check.py``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time

from nthbyte._agent import COMMAND, Error, Result, interpreter, load, restart_tracemalloc, stop_tracemalloc
from nthbyte._row import NO, PARTLY, UNKNOWN, YES, Row
from nthbyte._session import begin, configure, finish
from nthbyte._size import format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Seconds of CPU time in which time samples are awaited, tried in turn: a tick of the kernel's clock takes 4 ms, or 10.
_SPANS = (0.05, 0.5)

# A profile may become so large while nobody looks, in bytes.
_ROOM = 16 << 20

_RECORDED = (
    "heap",
    "native memory",
    "native frames",
    "time samples",
    "page tables",
    "profile's folder",
    "reports",
)


class Trial:
    """Short recordings of this process. Each is removed at once."""

    def __init__(self) -> None:
        self.descriptors: int | None = None
        """The descriptors that a recording has open; None if there was none."""
        self._folder = os.curdir
        # Why the command that reads profiles does not work.
        self._unread: Error | None = None

    def rows(self) -> list[Row]:
        """Records, and returns the rows in the order in which they are shown."""
        build = f"{interpreter()}, {sys.executable or 'of unknown path'}"
        try:
            agent = load()
        except Error as error:
            refused = [Row(what, NO, "nothing is recorded: see interpreter") for what in _RECORDED]
            return [Row.of_error("interpreter", error), *refused]
        with tempfile.TemporaryDirectory(prefix="nthbyte-check-") as elsewhere:
            folder = self._profiles_folder()
            if folder.state == NO:
                self._folder = elsewhere
            limit = stop_tracemalloc()
            heap = self._heap()
            if heap.state == NO:
                refused = [Row(what, NO, "nothing is recorded: see heap") for what in _RECORDED[1:4]]
                rows = [heap, *refused]
            else:
                rows = [heap, self._native_memory(), self._native_frames(), self._time_samples()]
            restart_tracemalloc(limit)
            rows += [_page_tables(agent.page_tables_problem()), folder]
            rows += [self._reports(heap.state == NO)]
        return [Row("interpreter", YES, build), *rows]

    def _profiles_folder(self) -> Row:
        """Makes a profile's file in the working folder, and removes it."""
        what = "profile's folder"
        try:
            path = load().claim(os.path.abspath(self._name()), False)
        except (Error, OSError) as error:
            return Row(what, NO, str(error), "change to a folder of yours, or name a file there with -o")
        load().settle(False)
        _remove(path)
        folder = os.path.dirname(path)
        system = os.statvfs(folder)
        free = system.f_bavail * system.f_frsize
        said = f"{folder}, {format_size(free)} free"
        if free < _ROOM:
            return Row(
                what,
                PARTLY,
                said,
                "make room, or name a file elsewhere with -o: a full disk ends a recording",
            )
        return Row(what, YES, said)

    def _heap(self) -> Row:
        what = "heap"
        try:
            result, notes = self._record(native=False)
        except (Error, OSError, ValueError) as error:
            return Row.of_error(what, error)
        limits = [note for note in (*result.notes, *notes) if "types are" in note or "instead" in note]
        if limits:
            return Row.of_error(what, "; ".join(dict.fromkeys(limits)), PARTLY)
        how = "in the collector" if sys.implementation.name == "pypy" else "in nthbyte's own heap"
        if "t" in getattr(sys, "abiflags", ""):
            how = "in CPython's own allocator"
        return Row(what, YES, f"objects are sampled {how}")

    def _native_memory(self) -> Row:
        what = "native memory"
        problem = load().load_native()
        if problem is not None:
            return Row.of_error(what, problem)
        return self._tried(what, "malloc and mappings are sampled", native=True)

    def _native_frames(self) -> Row:
        what = "native frames"
        return self._tried(
            what, "C, C++ and Rust code is in stacks, with --native-frames", native_frames=True
        )

    def _time_samples(self) -> Row:
        what = "time samples"
        for span in _SPANS:
            try:
                result, _ = self._record(native=False, cpu=True, spent=span)
            except (Error, OSError, ValueError) as error:
                return Row.of_error(what, error)
            if result.time_samples:
                notes = [note for note in result.notes if "time samples" in note]
                state = PARTLY if notes else YES
                return Row(what, state, "; ".join(notes) or "with --cpu")
        text = f"none came in {_SPANS[-1]} s of CPU time"
        return Row(what, NO, text, "a sandbox may withhold timers or signals: try outside of it")

    def _reports(self, has_none: bool) -> Row:
        what = "reports"
        if has_none:
            return Row(what, UNKNOWN, "there is no profile to read: see heap")
        return Row.of_error(what, self._unread) if self._unread is not None else Row(what, YES, COMMAND)

    def _tried(self, what: str, text: str, **options: Any) -> Row:
        """Returns the row of something that is there if it can be recorded with these options."""
        try:
            _, notes = self._record(**options)
        except (Error, OSError, ValueError) as error:
            return Row.of_error(what, error)
        for note in notes:
            if what in note:
                return Row.of_error(what, note)
        if self._unread is not None:
            return Row(what, UNKNOWN, "the profile cannot be read: see reports")
        return Row(what, YES, text)

    def _record(self, spent: float = 0, **options: Any) -> tuple[Result, list[str]]:
        """Records a moment, or a time in which this thread uses ``spent`` seconds of CPU time.

        Returns the result, and the notes in the profile.

        Raises Error if that is not possible, and ValueError if this interpreter does not have an option.
        """
        from nthbyte._options import OPTIONS

        defaults = {option.name: option.default for option in OPTIONS}
        config = configure(os.path.join(self._folder, self._name()), {**defaults, **options})
        before = _open_descriptors()
        path = begin(config, at_exit=lambda: None)
        try:
            during = _open_descriptors()
            [[] for _ in range(10_000)]
            _spend(spent)
            result = finish()
            notes = self._notes(path)
        finally:
            _remove(path)
        if before is not None and during is not None:
            self.descriptors = max(self.descriptors or 0, during - before)
        return result, notes

    def _notes(self, path: str) -> list[str]:
        """Returns the notes in a profile, as the command that reads profiles has them."""
        command = [COMMAND, "summary", "--json", "--top", "1", path]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            self._unread = Error(f"cannot run {COMMAND}: {error.strerror}; install nthbyte again")
            return []
        if done.returncode:
            said = done.stderr.strip()
            self._unread = Error(f"{COMMAND} does not read the profile ({said}); install nthbyte again")
            return []
        notes: list[str] = json.loads(done.stdout)["notes"]
        return notes

    def _name(self) -> str:
        return f".nthbyte-check.{os.getpid()}.nthb"


def _spend(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def _page_tables(problem: str | None) -> Row:
    what = "page tables"
    if problem is None:
        return Row(what, YES, "what RSS is made of is read from them")
    reason, _, instead = problem.partition("; ")
    return Row(what, NO if "not known" in instead else PARTLY, reason, instead)


def _open_descriptors() -> int | None:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return None


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        # The folder does not allow it any more.
        pass
