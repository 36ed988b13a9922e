"""A part of the recording that runs: what ``start`` and ``Profiler`` measure in a process that is recorded already."""

from __future__ import annotations

import fcntl
import os

from nthbyte._agent import COMMAND, Error, Mark, Result, load
from nthbyte._children import child_path

# The longest message of it that is read, in bytes.
_LONGEST_MESSAGE = 65536

# The descriptor of what the last part has read, as a file in memory: the next one reads on from there, not all of the
# recording again. With its process and its inode, because a child has its own recording, and programs close descriptors
# that are not theirs.
_checkpoint: tuple[int, int, int] | None = None
# The lowest number that it gets: programs count on low ones.
_LOWEST = 512


def _checkpoint_file() -> int | None:
    """Returns the descriptor; None where there is none."""
    global _checkpoint
    if _checkpoint is not None and _checkpoint[0] == os.getpid() and _is_checkpoint():
        return _checkpoint[1]
    let_go_of_checkpoint()
    try:
        low = os.memfd_create("nthbyte")
        try:
            descriptor = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _LOWEST)
        finally:
            os.close(low)
    except (AttributeError, OSError):
        return None
    _checkpoint = os.getpid(), descriptor, os.fstat(descriptor).st_ino
    return descriptor


def _is_checkpoint() -> bool:
    try:
        return _checkpoint is not None and os.fstat(_checkpoint[1]).st_ino == _checkpoint[2]
    except OSError:
        return False


def let_go_of_checkpoint() -> None:
    """Called when the recording ends."""
    global _checkpoint
    if _checkpoint is not None and _is_checkpoint():
        os.close(_checkpoint[1])
    _checkpoint = None


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
            checkpoint = None if is_over else _checkpoint_file()
            _write(last.path, self.output, self._force, first.time, last.time, checkpoint)
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


def _write(profile: str, output: str, force: bool, since: int, until: int, checkpoint: int | None) -> None:
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
    if checkpoint is not None:
        words.append(f"--checkpoint=/proc/self/fd/{checkpoint}")
    try:
        status, said = _run(words, checkpoint)
    except OSError as error:
        raise Error(f"cannot run {COMMAND}: {error.strerror}; install nthbyte again") from None
    if status or not os.path.exists(output):
        reason = said.decode(errors="replace").strip().removeprefix("nthbyte: ")
        raise Error(f"the part's profile is not written: {reason}")


def _run(words: list[str], passed: int | None) -> tuple[int, bytes]:
    """Runs the command, with a descriptor that is passed to it. Returns its status, and what it says.

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
            pass_fds=() if passed is None else (passed,),
        )
        return done.returncode, done.stdout
    reader, writer = os.pipe()
    try:
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, writer, 1),
            (os.POSIX_SPAWN_DUP2, writer, 2),
        ]
        if passed is not None:
            # It is closed at an exec otherwise.
            actions.append((os.POSIX_SPAWN_DUP2, passed, passed))
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
