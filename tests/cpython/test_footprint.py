"""The memory and modules that nthbyte adds to a program."""

from __future__ import annotations

from pathlib import Path

from harness import Interpreter

# The size of the library's code, and the smallest resident part of it at any moment, in KiB. The library releases its
# pages after each block, so a single measurement may come just before that.
RESIDENT = """
import re, time

def look():
    maps = re.split(r"^(?=[0-9a-f]+-)", open("/proc/self/smaps").read(), flags=re.M)
    code = [text for text in maps if re.search(r"^\\S+ r-xp .*/libnthbyte_cpython.so$", text, re.M)]
    sizes = [re.findall(r"^(?:Size|Rss): *(\\d+) kB$", piece, re.M) for piece in code]
    return [sum(map(int, column)) for column in zip(*sizes)]

kept = [[] for _ in range(100_000)]
looks = []
while len(looks) < 100 and (not looks or looks[-1][1] >= looks[-1][0] / 3):
    time.sleep(0.1)
    looks.append(look())
print(*min(looks))
"""


def test_few_modules(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import sys\nprint(*sys.modules)")
    plain = cpython.python("-m", "app", folder=tmp_path).ok().out.split()
    profiled = cpython.nthbyte("run", "-q", "app.py", folder=tmp_path).ok().out.split()
    more = {name for name in profiled if name not in plain and name.partition(".")[0] != "nthbyte"}
    assert more <= {"__future__", "_operator", "_posixsubprocess", "_tracemalloc", "atexit", "errno", "gc"}


def test_no_types_of_ast(cpython: Interpreter, tmp_path: Path) -> None:
    """The built-in ``compile`` makes these types, which take half a megabyte. Plain Python does not make them."""
    source = "print([kind for kind in object.__subclasses__() if kind.__name__ == 'AST'])"
    (tmp_path / "app.py").write_text(source)
    # The first run compiles the imported modules. Compiling makes these types too.
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path / "cache")}
    for _ in range(2):
        done = cpython.nthbyte("run", "-q", "app.py", folder=tmp_path, flags=("-S",), environment=compiled)
    assert done.ok().out.strip() == "[]"


def test_little_of_the_library_stays_resident(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(RESIDENT)
    done = cpython.nthbyte("run", "-q", "--every", "32KiB", "app.py", folder=tmp_path).ok()
    size, resident = map(int, done.out.split())
    # The kernel maps several pages at a time.
    assert 0 < resident < size / 3
