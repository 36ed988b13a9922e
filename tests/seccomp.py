"""A program that runs another one in which one system call fails, as in containers and on old kernels."""

from __future__ import annotations

import errno

PROGRAM = """
import ctypes, os, struct, sys
number, error = int(sys.argv[1]), int(sys.argv[2])
# Load the number of the call; is it this one; the error; allow.
filter = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | error), (0x06, 0, 0, 0x7FFF0000)]
code = b"".join(struct.pack("HBBI", *one) for one in filter)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]
libc = ctypes.CDLL(None)
program = Program(len(filter), code)
assert libc.prctl(38, 1, 0, 0, 0) == 0, "PR_SET_NO_NEW_PRIVS"
assert libc.prctl(22, 2, ctypes.byref(program)) == 0, "PR_SET_SECCOMP"
os.execv(sys.executable, [sys.executable, *sys.argv[3:]])
"""


def refusing(number: int, error: int = errno.EPERM) -> list[str]:
    """The first words of a Python's command line in which the call of this number fails with this error."""
    return ["-c", PROGRAM, str(number), str(error)]
