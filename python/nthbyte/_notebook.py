"""``%load_ext nthbyte``: records a cell of a notebook, and shows its page below it.

The magics are ``%%nthbyte`` and ``%nthbyte_memory``. Files of cells have the names that a notebook shows: ``In [7]``.
"""

from __future__ import annotations

import gc
import html
import json
import os
import shlex
import subprocess
import tempfile

from nthbyte._agent import COMMAND, Error
from nthbyte._session import begin, configure, finish
from nthbyte._variables import held, holdings, resident_set

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# Lines of code, and variables, that the text names, and the bytes of the smallest of them.
_LINES = 5
_SMALLEST = 64 << 10
# In the place of the page.
_NOT_SHOWN = (
    "nthbyte's page is not shown here. It is where the notebook is trusted and shows HTML; "
    "or with: %%nthbyte -o FILE, and then: nthbyte flamegraph FILE"
)


def load_ipython_extension(shell: Any) -> None:
    """Adds the magics to a shell of IPython."""
    magics = Magics(shell)
    shell.register_magic_function(magics.record, "cell", "nthbyte")
    shell.register_magic_function(magics.memory, "line", "nthbyte_memory")


class Magics:
    """The magics of one shell."""

    def __init__(self, shell: Any):
        self._shell = shell
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._number = 0
        self._this = ""

    def record(self, line: str, cell: str) -> None:
        """Runs the cell under nthbyte, says what it allocated, and shows the page.

        %%nthbyte [--every SIZE] [--cpu] [--native-frames] [--holders] [--no-page] [--height PIXELS] [-o FILE]
        """
        options = _options(line)
        if options is None:
            return
        shell = self._shell
        cells = getattr(shell.compile, "_filename_map", {})
        # The cell that the magic is in has the highest number.
        self._this = max(cells, key=cells.__getitem__, default="")
        number = cells.get(self._this)
        # Not the values: a cell that runs again may free its old ones.
        before = {name: id(value) for name, value in shell.user_ns.items()}
        try:
            path = self._recorded(cell, number, options)
        except (Error, ValueError) as error:
            print(f"nthbyte: {error}")
            return
        changed = {
            name: value
            for name, value in shell.user_ns.items()
            if not name.startswith("_") and before.get(name) != id(value)
        }
        self._show(path, options, changed)

    def _recorded(self, cell: str, number: int | None, options: Any) -> str:
        """Runs the code of a cell, and returns its profile's path."""
        from nthbyte._options import OPTIONS

        settings: dict[str, Any] = {option.name: option.default for option in OPTIONS if option.is_argument}
        for name in ("every", "cpu", "native_frames", "holders"):
            settings[name] = getattr(options, name)
        title = "a cell" if number is None else f"In [{number}]"
        begin(configure(options.output or self._temporary(), settings, [title]))
        try:
            self._run(cell, number)
            # What only waits for the collector is not left.
            gc.collect()
        finally:
            result = finish()
        return result.path

    def _run(self, cell: str, number: int | None) -> None:
        """Runs the code of a cell, with a comment for the line of the magic: so its lines keep their numbers."""
        compiler = self._shell.compile
        cache = compiler.cache

        def cache_of_this(code: str, _: int = 0, raw_code: str | None = None) -> Any:
            # The shell counts one cell more by now, and would show its lines as that one's.
            return cache(code, number, raw_code)

        if number is not None:
            compiler.cache = cache_of_this
        try:
            self._shell.run_cell(f"# %%nthbyte\n{cell}", store_history=False)
        finally:
            vars(compiler).pop("cache", None)

    def _show(self, path: str, options: Any, changed: dict[str, Any]) -> None:
        names = [word for pair in self._cells() for word in ("--file-name", "=".join(pair))]
        ends = _ask("summary", path, "--by", "line", "--json", "--at", "end", *names)
        # PyPy does not say what was alive.
        is_known = not isinstance(ends, str) and "alive" in ends["all"]
        peak = _ask("summary", path, "--by", "line", "--json", "--at", "peak", *names) if is_known else ends
        if isinstance(ends, str) or isinstance(peak, str):
            print(f"nthbyte: {ends if isinstance(ends, str) else peak}")
            return
        name = dict(self._cells()).get(self._last(), "")
        lines = [*text(ends, peak, name), *self._of_variables(changed)]
        if options.holders:
            lines += _holders(path, set(changed))
        print("\n".join(_written(lines)))
        if options.output is not None:
            print(f"Profile: {path}")
        if options.page:
            done = subprocess.run(
                [COMMAND, "flamegraph", path, "-o", "-", *names],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
            )
            if done.returncode:
                print(done.stderr.strip())
                return
            from IPython.display import display

            display(Page(done.stdout, options.height))

    def memory(self, line: str) -> None:
        """Says what the memory of the kernel is, and which variables of the notebook hold how much of it.

        %nthbyte_memory [N]
        """
        most = int(line) if line.strip().isdecimal() else 15
        hidden = set(getattr(self._shell, "user_ns_hidden", ()))
        names = {
            name: value
            for name, value in self._shell.user_ns.items()
            if not name.startswith("_") and name not in hidden
        }
        print(*_written([["The kernel has ", resident_set(), " of memory (RSS)."]]))
        print(held(names, most, _texts))

    def _last(self) -> str:
        """The file of the code that ran last."""
        cells = getattr(self._shell.compile, "_filename_map", {})
        number = cells.get(self._this)
        return next((file for file in cells if cells[file] == number and file != self._this), "")

    def _of_variables(self, changed: dict[str, Any]) -> list[list[Any]]:
        """What the variables that a cell has set hold."""
        found, _ = holdings(changed)
        large = [one for one in found if one.alone >= _SMALLEST]
        return [[f"  {one.name:<12} holds ", one.alone, f" ({one.kind})"] for one in large[:_LINES]]

    def _cells(self) -> list[tuple[str, str]]:
        """The files of the cells that have run, and the names that the notebook shows for them."""
        numbers = getattr(self._shell.compile, "_filename_map", {})
        # The file with the call of a magic is none that a reader knows.
        return [(file, f"In [{number}]") for file, number in numbers.items() if file != self._this]

    def _temporary(self) -> str:
        if self._folder is None:
            # It is removed when the kernel ends.
            self._folder = tempfile.TemporaryDirectory(prefix="nthbyte-")
        self._number += 1
        return os.path.join(self._folder.name, f"cell-{self._number}.nthb")


class Page:
    """A page as the output of a cell: a frame that has all of it in itself, so it works in an exported notebook too."""

    def __init__(self, page: str, height: int):
        self._page = page
        self._height = height

    def __repr__(self) -> str:
        return _NOT_SHOWN

    def _repr_html_(self) -> str:
        # Where the notebook is not trusted, the frame goes, and its text stays.
        return (
            f'<iframe srcdoc="{html.escape(self._page, quote=True)}" '
            f'style="width: 100%; height: {self._height}px; border: 0">{html.escape(_NOT_SHOWN)}</iframe>'
        )


def _options(line: str) -> Any:
    """The options of the magic; None if they are wrong, which is said."""
    import argparse

    parser = argparse.ArgumentParser(prog="%%nthbyte", exit_on_error=False)
    parser.add_argument("--every", metavar="SIZE", help="mean distance between samples; 1 records everything")
    parser.add_argument("--cpu", action="store_const", const=True, help="also take time samples")
    parser.add_argument("--native-frames", action="store_true", help="with the frames of C, C++ and Rust")
    parser.add_argument(
        "--holders", action="store_const", const=True, help="say who holds what is alive at the end"
    )
    parser.add_argument("--no-page", dest="page", action="store_false", help="show the text only")
    parser.add_argument("--height", type=int, default=960, help="of the page, in pixels (default: 960)")
    parser.add_argument("-o", "--output", metavar="FILE", help="keep the profile in this file")
    try:
        return parser.parse_args(shlex.split(line))
    except (argparse.ArgumentError, ValueError) as error:
        print(f"nthbyte: {error}")
    except SystemExit:
        # It has printed its help, or an error.
        pass
    return None


def _ask(command: str, *words: str) -> Any:
    """A report as data; a text if there is none."""
    done = subprocess.run(
        [COMMAND, command, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    return done.stderr.strip() if done.returncode else json.loads(done.stdout)


def _holders(path: str, known: set[str]) -> list[list[Any]]:
    """Who holds live objects in the kernel when a cell has ended, but for variables that are known."""
    found = _ask("holders", path, "--json")
    if isinstance(found, str):
        return [[found]]
    lines = []
    for row in [row for row in found["holders"] if row["holder"] not in known][:_LINES]:
        lines.append([f"  {row['holder']:<12} holds ", row["bytes"], f" ({row['what']})"])
        lines += [[f"  {'':<12} … so does {also}"] for also in row["also"][:1]]
    return lines


def text(ends: dict[str, Any], peak: dict[str, Any], cell: str) -> list[list[Any]]:
    """What a cell did, in a few lines: each has texts and amounts. ``cell``: its name, as its lines have it."""
    first: list[Any] = [ends["all"]["bytes"], " allocated"]
    if "alive" in peak["all"]:
        first += [" · ", peak["all"]["alive"], " at most at one time"]
        first += [" · ", ends["all"]["alive"], " left alive"]
    lines = [[*first, f" · {ends['duration_nanos'] / 1e9:.3g} s"]]
    left: dict[int, dict[str, float]] = {}
    for row in ends["rows"]:
        if row["file"] == cell and row.get("total_alive", {}).get("estimate", 0) >= _SMALLEST:
            # A function in a line is a row of its own, and a part of the line.
            most = left.setdefault(row["line"], row["total_alive"])
            if row["total_alive"]["estimate"] > most["estimate"]:
                left[row["line"]] = row["total_alive"]
    ranked = sorted(left.items(), key=lambda item: -item[1]["estimate"])
    for line, alive in ranked[:_LINES]:
        lines.append([f"  {f'{cell}:{line}':<12} left ", alive, " alive"])
    return lines


def _written(lines: list[list[Any]]) -> list[str]:
    """Lines of texts and amounts, with the amounts as all reports write them."""
    texts = iter(_texts([part for line in lines for part in line if not isinstance(part, str)]))
    return ["".join(part if isinstance(part, str) else next(texts) for part in line) for line in lines]


def _texts(amounts: Sequence[Any]) -> list[str]:
    """The texts of amounts: of bytes, or of estimates with their intervals."""
    words = [
        ":".join(str(one[end]) for end in ("estimate", "low", "high")) if isinstance(one, dict) else str(one)
        for one in amounts
    ]
    command = [COMMAND, "amounts", *words]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True
    ).stdout.splitlines()
