"""The magics for notebooks, in a stand-in for IPython's shell."""

from __future__ import annotations

import contextlib
import html
import io
import linecache
import re
from typing import Any, Callable

import nthbyte
from nthbyte._notebook import Page
from nthbyte._variables import holdings


class Compiler:
    """Names the code of cells as IPython's does, and remembers their numbers."""

    def __init__(self) -> None:
        self._filename_map: dict[str, int] = {}

    def cache(self, code: str, number: int = 0, raw_code: str | None = None) -> str:
        name = f"/tmp/ipykernel_1/{abs(hash(code))}.py"
        self._filename_map[name] = number
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        return name


class Shell:
    """As much of a shell as the magics use."""

    def __init__(self) -> None:
        self.compile = Compiler()
        self.user_ns: dict[str, Any] = {}
        self.execution_count = 1
        self.magics: dict[str, Callable[..., None]] = {}

    def register_magic_function(self, function: Callable[..., None], kind: str, name: str) -> None:
        self.magics[name] = function

    def run_cell(self, code: str, store_history: bool = True) -> None:
        name = self.compile.cache(code, self.execution_count, code)
        self.execution_count += store_history
        if code.startswith("%%"):
            line, _, cell = code.partition("\n")
            magic, _, rest = line[2:].partition(" ")
            self.magics[magic](rest, cell)
        else:
            exec(compile(code, name, "exec"), self.user_ns)


def said(shell: Shell, code: str) -> list[str]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        shell.run_cell(code)
    return out.getvalue().splitlines()


def test_a_cell_says_what_it_leaves_by_its_own_lines() -> None:
    shell = Shell()
    nthbyte.load_ipython_extension(shell)
    shell.run_cell("def make(n):\n    return [bytes(1000) for _ in range(n)]")
    lines = said(shell, "%%nthbyte --every 1 --no-page\nrows = make(2000)\n\nmake(3000)\n")
    assert "MiB allocated" in lines[0] and "left alive" in lines[0]
    # The third line of the cell leaves nothing; the first one is the magic's.
    assert [line.split()[:4] for line in lines[1:]] == [
        ["In", "[2]:2", "left", "1.99"],
        ["rows", "holds", "1.99", "MiB"],
    ]
    # The same cell again has a new number.
    assert said(shell, "%%nthbyte --every 1 --no-page\nrows = make(2000)\n")[1].split()[1] == "[3]:2"


def test_a_cell_says_who_holds_what_is_alive() -> None:
    shell = Shell()
    nthbyte.load_ipython_extension(shell)
    shell.run_cell("def make(n):\n    return {'all': [bytes(1000) for _ in range(n)]}")
    lines = said(shell, "%%nthbyte --every 4KiB --holders --no-page\ncache = make(40000)\n")
    [line] = [line for line in lines if "cache']['all']" in line]
    assert "['all'] holds " in line and " MiB ±" in line and line.endswith("(list of 40,000 bytes)")


def test_what_is_wrong_is_said_and_the_cell_does_not_run() -> None:
    shell = Shell()
    nthbyte.load_ipython_extension(shell)
    assert said(shell, "%%nthbyte --every few\nran = True") == [
        "nthbyte: 'few' is not a size: write 512KiB, 0.5MiB or 524288"
    ]
    assert said(shell, "%%nthbyte '\nran = True") == ["nthbyte: No closing quotation"]
    assert "ran" not in shell.user_ns


def test_what_variables_share_belongs_to_none_of_them() -> None:
    shared = bytes(30_000)
    names = {"one": [bytes(10_000), shared], "two": [shared], "again": None, "module": io}
    found = {one.name: one for one in holdings(names)[0]}
    assert 10_000 < found["one"].alone < 10_500 and found["two"].alone < 500
    assert 30_000 < found["one"].shared < 31_000 and 30_000 < found["two"].shared < 31_000
    assert found["module"].alone == 0


class Frame:
    """Answers with the size of all that is inside, as pandas' do."""

    def __init__(self) -> None:
        self.data = bytes(50_000)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + len(self.data)


def test_what_is_inside_counts_once() -> None:
    [found] = holdings({"frame": Frame()})[0]
    assert 50_000 < found.alone < 51_000


def test_a_page_stays_inside_of_its_frame() -> None:
    page = Page('<script>"&</script>', 300)
    text = page._repr_html_()
    assert text.startswith('<iframe srcdoc="&lt;script&gt;&quot;&amp;&lt;/script&gt;" style=')
    # What sanitizers leave of it, and what shows no HTML, say where the page is.
    assert html.unescape(re.sub("<[^>]*>", "", text)) == repr(page)
    assert "trusted" in repr(page) and "nthbyte flamegraph" in repr(page)
