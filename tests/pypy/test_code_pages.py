"""What a session changes in the library's code and import table, and that it is changed back."""

from __future__ import annotations

from pathlib import Path

import harness
from harness import Interpreter

CODE = """
import ctypes
import nthbyte

def mapped():
    "The protection of each page."
    with open("/proc/self/maps") as maps:
        for line in maps:
            where, may, *_ = line.split()
            start, end = (int(address, 16) for address in where.split("-"))
            if start < 1 << 47:
                yield range(start, end, 4096), may[:3], line

def library():
    return {page: may for pages, may, line in mapped() if "libpypy" in line for page in pages}

# The import slots, of malloc and free among others, as in a library that is linked with `-z now`: the loader has filled
# them and made their page read-only, with those before it.
slots = min(page for page, may in library().items() if may == "rw-")
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(slots), 4096, 1) == 0
before = library()
code = [page for page, may in before.items() if "x" in may]
first, last = min(before), max(before)

def protections():
    "Of the library's pages, even where they are not the file's any more."
    near = [(pages, may) for pages, may, _ in mapped() if first <= pages.start <= last]
    now = {page: may for pages, may in near for page in pages}
    return {page: now[page] for page in before}

def content():
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        memory.seek(code[0])
        return memory.read(len(code) * 4096)

def changed(old, new):
    "In how many places."
    blocks = range(0, len(old), 4096)
    differ = [at for at in blocks if old[at : at + 4096] != new[at : at + 4096]]
    changes = [at + byte for at in differ for byte in range(4096) if old[at + byte] != new[at + byte]]
    return sum(at - before > 16 for at, before in zip(changes, [-100, *changes]))

assert code == list(range(code[0], code[-1] + 1, 4096))
assert {"r-x", "r--", "rw-"} == set(before.values())
old = content()
for _ in range(2):
    nthbyte.start("out.nthb", every="64KiB")
    during = content(), protections()
    # Large ones: whether they are freed is watched.
    for _ in range(100):
        [bytearray(300_000) for _ in range(10)]
    busy = protections()
    nthbyte.stop()
    print(changed(old, during[0]), changed(old, content()), during[1] == busy == protections() == before)
"""


def test_a_stopped_session_leaves_the_library_as_it_was(pypy: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(CODE)
    done = pypy.python("program.py", folder=tmp_path, environment={"LD_BIND_NOW": "1"}).ok()
    sessions = [line.split() for line in done.out.splitlines()]
    # The first instructions of three functions, and the calls that allocate large objects.
    assert len(sessions) == 2
    assert all(3 < int(during) < 12 and after == "0" for during, after, _ in sessions)
    # No page is writable and executable, and what the loader has made read-only is so again.
    assert all(alike == "True" for *_, alike in sessions)


NEVER_BOTH = """
import ctypes, struct
import nthbyte
# A filter of system calls: mprotect (10) to writable and executable at once (6) is an error.
steps = [
    (0x20, 0, 0, 0),
    (0x15, 0, 4, 10),
    (0x20, 0, 0, 32),
    (0x54, 0, 0, 6),
    (0x15, 0, 1, 6),
    (0x06, 0, 0, 0x00050001),
    (0x06, 0, 0, 0x7FFF0000),
]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0, "PR_SET_NO_NEW_PRIVS"
assert libc.prctl(22, 2, program, 0, 0) == 0, "PR_SET_SECCOMP"
page = ctypes.c_void_p(id(code) & ~4095)
assert libc.mprotect(page, 4096, 7) == -1 and ctypes.get_errno() == 1
nthbyte.start("out.nthb")
nthbyte.stop()
"""


def test_no_code_is_made_writable_and_executable_at_once(pypy: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(NEVER_BOTH)
    pypy.python("program.py", folder=tmp_path).ok()
    assert harness.summary(tmp_path / "out.nthb")["method"] == "nursery-limit"


LIMITED = """
import resource
import nthbyte

def mappings():
    with open("/proc/self/maps") as maps:
        return len(maps.readlines())

def session(before_it_stops=lambda: None):
    nthbyte.start("out.nthb", every="64KiB")
    [[] for _ in range(10_000)]
    before_it_stops()
    nthbyte.stop()

session()
before = mappings()
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
# There is no memory for a copy of a code page, so the hooks cannot be removed.
session(lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 20, hard)))
resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
[[] for _ in range(10_000)]
for _ in range(200):
    session()
print(mappings() - before)
"""


def test_hooks_that_could_not_be_removed_serve_the_next_session(pypy: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(LIMITED)
    done = pypy.python("program.py", folder=tmp_path).ok()
    assert harness.summary(tmp_path / "out.nthb")["method"] == "nursery-limit"
    # Sessions leave no mappings: some are of the interpreter's own memory, which grows.
    assert int(done.out) < 50
