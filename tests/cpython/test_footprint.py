"""The memory and modules that nthbyte adds to a program."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from harness import SITE, Interpreter

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
while len(looks) < 100 and (not looks or looks[-1][1] >= looks[-1][0] * 0.85):
    time.sleep(0.1)
    looks.append(look())
print(*min(looks))
"""

# Upper bounds of the objects that nthbyte adds, up to CPython 3.13 and from 3.14 on: up to 20 more than there are. A
# module that is not needed has more with its content.
MOST_OBJECTS = (360, 555)

FUTURE = """
from __future__ import annotations
import __future__
x: int
print(__annotations__["x"], type(__future__.annotations).__name__)
import nthbyte
assert isinstance(nthbyte.__version__, str)
"""


def test_few_modules(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import sys\nprint(*sys.modules)")
    plain = cpython.python("-m", "app", folder=tmp_path).ok().out.split()
    profiled = cpython.nthbyte("run", "-q", "app.py", folder=tmp_path).ok().out.split()
    more = {name for name in profiled if name not in plain and name.partition(".")[0] != "nthbyte"}
    assert more <= {"_posixsubprocess", "_tracemalloc", "atexit", "errno", "gc"}


# Prints how many objects a full collection visits.
OBJECTS = "import gc\ngc.collect()\nprint(len(gc.get_objects()))"


def test_few_objects_for_the_collector(cpython: Interpreter, tmp_path: Path) -> None:
    """Each full collection of the program visits nthbyte's objects too."""
    (tmp_path / "app.py").write_text(OBJECTS)
    plain = int(cpython.python("-m", "app", folder=tmp_path).ok().out)
    profiled = int(cpython.nthbyte("run", "-q", "app.py", folder=tmp_path).ok().out)
    assert profiled - plain <= MOST_OBJECTS[cpython.python_version >= (3, 14)]


def test_a_program_may_import_the_future(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(FUTURE)
    done = cpython.nthbyte("run", "-q", "app.py", folder=tmp_path).ok()
    assert (done.out, done.err) == ("int _Feature\n", "")


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
    # The kernel maps sixteen pages at a time. Without the releases, nine tenths are resident.
    assert 0 < resident < size * 0.85


# Functions of nthbyte that code in the section `nthbyte_hot` calls, but rarely: at the first use of something, when
# memory is taken from the system or given back to it, in other interpreters, after a fork, or if a tracer listens.
RARELY_CALLED = {
    "nthbyte_cpython::labels::tasks::Seen::find",
    "nthbyte_cpython::labels::tasks::objects::push_characters",
    "nthbyte_cpython::labels::tasks::objects::push_type_name",
    "nthbyte_cpython::labels::tasks::through_kernel",
    "nthbyte_cpython::patches::unlocked::is_of_this_thread",
    "nthbyte_cpython::sampling::codes::Codes::define",
    "nthbyte_cpython::sampling::tracker::Profile::begin_in_child",
    "nthbyte_cpython::sampling::tracker::Program::freed_unrecorded",
    "nthbyte_cpython::sampling::tracker::weight",
    "nthbyte_cpython::sampling::types::Types::discover",
    "nthbyte_heap::arena::Arenas::add_arena",
    "nthbyte_heap::arena::Arenas::collapse_or_populate",
    "nthbyte_heap::arena::retention::<impl nthbyte_heap::arena::Arenas>::purge",
    "nthbyte_heap::supply::<impl nthbyte_heap::heap::Heap>::flush_lists",
    "nthbyte_host::process::reads::MemoryFile::open",
    "nthbyte_mimalloc::cut::<impl nthbyte_mimalloc::record::Record>::adopt",
    "nthbyte_mimalloc::cut::<impl nthbyte_mimalloc::record::Record>::take_over",
    "nthbyte_mimalloc::record::locked",
    "nthbyte_mimalloc::record::other",
    "nthbyte_mimalloc::settings::read_soon",
    "nthbyte_mimalloc::slow::resize_huge",
    "nthbyte_mimalloc::tokens::insert",
    "nthbyte_session::ring::Ring::replace",
    "nthbyte_session::writer::handle::Writer::put",
    "nthbyte_session::writer::handle::Writer::spawn",
}


def test_what_a_sample_runs_is_never_released() -> None:
    """Pages outside of that section are released after each block, and may have to be read from the disk.

    A function that is called at most samples belongs into the section: `#[unsafe(link_section = "nthbyte_hot")]`.
    """
    objdump = shutil.which("objdump")
    if objdump is None:
        pytest.skip("needs objdump")
    library = SITE / "nthbyte" / "libnthbyte_cpython.so"
    words = [objdump, "--disassemble", "--demangle", "--section=nthbyte_hot", str(library)]
    listing = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    hot = set(re.findall(r"^[0-9a-f]+ <(.+)>:$", listing, re.M))
    assert len(hot) > 20
    # Calls and jumps.
    called = set(re.findall(r"\t(?:call|j\w+) +[0-9a-f]+ <(nthbyte_.+?)(?:\+0x[0-9a-f]+)?>$", listing, re.M))
    assert called & hot
    # The agent for builds without the GIL has the same sources.
    cold = {name.replace("nthbyte_freethreaded::", "nthbyte_cpython::") for name in called - hot}
    assert cold <= RARELY_CALLED
