"""Claims the file of a profile, so that two sessions never write to the same one."""

from __future__ import annotations

import errno
import os
import stat
import time

from nthbyte._agent import Error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

# The first bytes of every profile: see docs/format.md.
MAGIC = b"\x89nthb\r\n\x1a"

# Another process holds the lock of a file for the time of one write. After this many seconds it must be stopped.
_LONGEST_WAIT = 1.0

# A session writes into the file that it has claimed before so many seconds have passed. Later it must be stopped.
_LONGEST_START = 10.0


class Claim:
    """A file that only this process uses for a profile."""

    def __init__(self, path: str, is_new: bool = False, was_empty: bool = False, replaced: str | None = None):
        self.path = path
        self._is_new = is_new
        self._was_empty = was_empty
        # The path of the profile whose place the file has taken, for the time until the session has begun.
        self._replaced = replaced

    def withdraw(self) -> None:
        """Makes the file what it was, because no session began."""
        try:
            if self._replaced is not None:
                os.replace(self._replaced, os.path.realpath(self.path))
            elif self._is_new:
                os.unlink(self.path)
            elif self._was_empty:
                os.truncate(self.path, 0)
        except OSError:
            # It is gone already, or the folder does not allow it.
            pass


def claim(path: str, *, force: bool = False, kept: Collection[str] = ()) -> Claim:
    """Makes a new file for a profile: at ``path``, or with a free name that resembles it.

    A file that is there stays as it is, unless it is empty. With ``force``, a profile is replaced, unless its real path
    is in ``kept``, or another session has just claimed it; no other file is. A device or a pipe is used as it is. The
    new file begins like a profile, so that no other session claims it.

    Raises Error if the file cannot be made.
    """
    names = _names(path)
    while True:
        candidate = next(names)
        is_kept = kept and os.path.realpath(candidate) in kept and os.path.exists(candidate)
        if not is_kept:
            # A file that cannot be replaced is an error at the wanted path only.
            claimed = _take(candidate, force, is_wanted=force and candidate == path)
            if claimed is not None:
                return claimed


def confirm(claimed: Claim) -> None:
    """Removes the profile that the file replaces, because the session has begun.

    It is no method: PyPy keeps called methods in a cache, and this module with them, which `nthbyte run` drops.
    """
    if claimed._replaced is not None:
        _remove(claimed._replaced)
        claimed._replaced, claimed._is_new = None, True


def free_name(path: str) -> str:
    """Returns the name that a claim without ``force`` would take now. It makes no file."""
    return next(candidate for candidate in _names(path) if not _is_taken(candidate))


def _names(path: str) -> Iterator[str]:
    """Yields the names of a profile that is wanted at ``path``, without end."""
    yield path
    number = 1
    while True:
        number += 1
        yield numbered(path, number)


def _is_taken(path: str) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size > 0


def numbered(path: str, number: int) -> str:
    """Returns another name for a profile: ``app.nthb`` becomes ``app-2.nthb``. (``app.2.nthb`` belongs to a child.)"""
    stem, suffix = os.path.splitext(path)
    if suffix[1:].isdecimal():
        # The number of a process is no suffix.
        stem, suffix = path, ""
    return f"{stem}-{number}{suffix}"


def is_profile(path: str) -> bool:
    """Whether there is a file that begins like a profile."""
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def abandon(path: str) -> None:
    """Removes a profile whose program did not begin."""
    # Not a link, nor a device.
    if os.path.isfile(path) and not os.path.islink(path):
        _remove(path)


def _take(path: str, force: bool, *, is_wanted: bool) -> Claim | None:
    """Claims this path; None if a file is there that stays: with ``is_wanted``, this is an error."""
    is_new = False
    try:
        if not os.path.lexists(path):
            # Two processes may come here, but only one of them makes the file.
            os.close(_create(path))
            is_new = True
    except FileExistsError:
        pass
    except OSError as error:
        raise Error(_explain(path, error)) from None
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "")
        if not stat.S_ISREG(mode):
            return Claim(path)
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError as error:
        if os.path.islink(path):
            # A link to a file that does not exist yet.
            return Claim(path)
        raise Error(_explain(path, error)) from None
    except PermissionError as error:
        if not is_wanted and os.access(os.path.dirname(path), os.W_OK):
            # Another user's file.
            return None
        raise Error(_explain(path, error)) from None
    except OSError as error:
        raise Error(_explain(path, error)) from None
    try:
        _lock(file)
        head = os.pread(file, len(MAGIC), 0)
        if not head:
            os.write(file, MAGIC)
            return Claim(path, is_new, was_empty=True)
        if force and head == MAGIC[: len(head)]:
            found = os.fstat(file)
            if not _is_at(path, found):
                # Another process has just replaced it.
                return _take(path, force, is_wanted=is_wanted)
            if found.st_size <= len(MAGIC) and time.time() - found.st_mtime < _LONGEST_START:
                return None
            return Claim(path, replaced=_replace(os.path.realpath(path)))
        if is_wanted:
            raise Error(f"{path} exists and is not a profile: choose another name with -o, or remove it")
        return None
    except OSError as error:
        raise Error(_explain(path, error)) from None
    finally:
        # This also gives up the lock.
        os.close(file)


def _is_at(path: str, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), found)
    except OSError:
        return False


def _replace(path: str) -> str | None:
    """Puts a new file in the place of a profile. Returns the profile's other name.

    A session that still writes the old file goes on with that, and does not write into the new one. Returns None if the
    folder does not allow it; then the file is still the old one.
    """
    folder, name = os.path.split(path)
    old, new = (os.path.join(folder, f".{name}.{os.getpid()}.{which}") for which in ("old", "new"))
    try:
        os.link(path, old)
    except OSError:
        return None
    try:
        file = _create(new)
        try:
            os.write(file, MAGIC)
        finally:
            os.close(file)
        os.replace(new, path)
    except OSError:
        _remove(new)
        _remove(old)
        return None
    return old


def _create(path: str) -> int:
    """Makes an empty file that only its owner can read. Raises FileExistsError if there is anything at the path."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        # It is gone already, or the folder does not allow it.
        pass


def _lock(file: int) -> None:
    """Keeps other processes from claiming the file; as far as the file system can. Does not wait for long."""
    end = time.monotonic() + _LONGEST_WAIT
    while True:
        try:
            os.lockf(file, os.F_TLOCK, 0)
            return
        except (AttributeError, OSError) as error:
            is_held = isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EAGAIN)
            if not is_held or time.monotonic() > end:
                return
        time.sleep(0.001)


def _explain(path: str, error: OSError) -> str:
    folder = os.path.dirname(path)
    if error.errno == errno.ENOENT and not os.path.isdir(folder):
        return f"the folder of {path} does not exist; make it, or choose another with -o"
    if error.errno == errno.EISDIR:
        return f"{path} is a folder; choose the name of a file with -o"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"not allowed to write {path}; choose another place with -o"
    if error.errno == errno.ENOSPC:
        return f"no space left for {path}; choose another place with -o"
    return f"the file {path} cannot be made ({error.strerror}); choose another place with -o"
