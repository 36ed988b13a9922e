"""A part of the recording that runs: what ``start`` and ``Profiler`` measure in a process that is recorded already."""

from __future__ import annotations

import os

from nthbyte._agent import COMMAND, Error, Mark, Result, load
from nthbyte._children import child_path

# The longest message of it that is read, in bytes.
_LONGEST_MESSAGE = 65536


class Part:
    """Begins now, and ends with :meth:`end`, or with the recording."""

    def __init__(self, output: str | None, force: bool):
        """``output`` is the path of the part's own profile, if it has one; ``force``: it replaces another profile.

        Raises Error if there is none to make a part of, or if the file could not be made.
        """
        agent = load()
        self.output = output
        """The path of its own profile, which :meth:`end` writes; None for none."""
        self._force = force
        if output is not None:
            # The same errors, and the same other name, as for a recording; the file itself is made at the end.
            self.output = agent.claim(output, force)
            agent.settle(False)
        self._pid = os.getpid()
        self._last: Mark | None = None
        first = agent.mark()
        if first is None:
            raise Error(
                "the recording that runs takes nothing now, so there is no part of it; try again later"
            )
        self._first = first

    def close(self) -> None:
        """Ends the part in the recording's time, because the recording ends."""
        if self._last is None:
            self._last = load().mark()

    def end(self) -> Result:
        """Ends the part, writes its own profile if it has one, and returns what was recorded in it.

        Raises Error if that profile cannot be written.
        """
        is_over = self._last is not None
        self.close()
        first, last = self._first, self._last
        if last is None:
            # The child of a fork that has recorded nothing.
            return Result("", 0, 0, 0, None, ("nothing was recorded in this process",))
        if os.getpid() != self._pid:
            # The child of a fork: its own profile begins there. The count of lost events goes on.
            first = Mark(0, 0, 0, first.lost, 0, last.path)
            self.output = self.output and child_path(self.output, os.getpid())
        notes = [f"a part of the recording {last.path}, with its options"]
        if self.output is not None:
            if not is_over and not load().flush():
                notes.append("its last second is missing: the profile's file takes nothing")
            _write(last.path, self.output, self._force, first.time, last.time)
        allocated = None
        if first.allocated is not None and last.allocated is not None:
            allocated = last.allocated - first.allocated
        return Result(
            self.output or last.path,
            last.samples - first.samples,
            last.time_samples - first.time_samples,
            last.lost - first.lost,
            allocated,
            tuple(notes),
        )


def _write(profile: str, output: str, force: bool, since: int, until: int) -> None:
    """Writes the part of a profile between two times in nanoseconds. Raises Error if that fails."""
    words = [
        "nthbyte",
        "merge",
        profile,
        "-o",
        output,
        f"--since={since // 1000}us",
        f"--until={until // 1000}us",
    ]
    if force:
        words.append("--force")
    try:
        status, said = _run(words)
    except OSError as error:
        raise Error(f"cannot run {COMMAND}: {error.strerror}; install nthbyte again") from None
    if status or not os.path.exists(output):
        reason = said.decode(errors="replace").strip().removeprefix("nthbyte: ")
        raise Error(f"the part's profile is not written: {reason}")


def _run(words: list[str]) -> tuple[int, bytes]:
    """Runs the command. Returns its status, and what it says.

    Not with subprocess, of which programs and their tests make something else; but PyPy has no ``posix_spawn``. The
    program may wait for any child of its own, so the end of this one is seen by the end of its output.
    """
    if not hasattr(os, "posix_spawn"):
        import subprocess

        done = subprocess.run(
            words,
            executable=COMMAND,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        return done.returncode, done.stdout
    reader, writer = os.pipe()
    try:
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, writer, 1),
            (os.POSIX_SPAWN_DUP2, writer, 2),
        ]
        pid = os.posix_spawn(COMMAND, words, os.environ, file_actions=actions)
    except OSError:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    said = b""
    with open(reader, "rb", buffering=0) as file:
        while part := file.read(4096):
            said = (said + part)[:_LONGEST_MESSAGE]
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        # Another thread has waited for it, or the program ignores SIGCHLD.
        return 0, said
    return status, said
