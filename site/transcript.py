"""The parts of a page that come from running something: its programs, its changes, its commands and their outputs.

Three kinds of comments in the Markdown mark them. All of a page run in order, in one folder that has copies of the
files beside the page::

    <!-- output
    nthbyte summary shop.nthb --top 5
    expect: Sessions\\.remember
    shown: 9
    -->
    a code block, which `make docs-outputs` writes
    <!-- end -->

    <!-- change: shop.py -->
    a code block with the language `diff`, which is applied to the copy

    <!-- picture: page.png 1200x700
    nthbyte flamegraph shop.nthb -o page.html
    -->

``expect`` is a regular expression that the output of the command must contain; there may be several. ``shown`` is how
many of the output's lines the page has. A picture shows the HTML file that the command names.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

_MARK = re.compile(
    r"^<!-- (output|change|picture)(?::? *(.*?))?(?:\n(.*?)\n| )-->\n", re.MULTILINE | re.DOTALL
)
_END = "<!-- end -->"
_DIFF = re.compile(r"\s*```diff\n(.*?)```", re.DOTALL)
_FIRST_LINE = "$ "


class Mistake(Exception):
    """A page, or what its commands print, is not as it must be."""


@dataclass(frozen=True)
class Output:
    """A command, and the place in the page of what it prints."""

    command: str
    start: int
    end: int
    expected: list[str] = field(default_factory=list)
    shown: int | None = None

    def block(self, output: str) -> str:
        """Returns the code block for the page."""
        lines = [line.rstrip() for line in output.rstrip("\n").split("\n")]
        if self.shown is not None and len(lines) > self.shown:
            lines = [*lines[: self.shown], "…"]
        return "\n".join(["", "```text", f"{_FIRST_LINE}{self.command}", *lines, "```", "", ""])

    def check(self, output: str, where: str) -> list[str]:
        """Returns the expected lines that an output lacks."""
        missing = [one for one in self.expected if not re.search(one, output, re.MULTILINE)]
        return [f"`{self.command}`: nothing like `{one}` {where}" for one in missing]


@dataclass(frozen=True)
class Change:
    """A change to a program."""

    file: str
    diff: str

    def apply(self, source: str) -> str:
        """Returns the changed program."""
        for hunk in re.split(r"^(?:@@.*|\.\.\.)\n", self.diff, flags=re.MULTILINE):
            lines = hunk.splitlines()
            old = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
            new = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
            if source.count(old) != 1:
                raise Mistake(f"{self.file}: this is in it {source.count(old)} times, not once:\n{old}")
            source = source.replace(old, new)
        return source


@dataclass(frozen=True)
class Picture:
    """A picture of a page that a command writes."""

    name: str
    width: int
    height: int
    command: str

    @property
    def page(self) -> str:
        """The file that the command writes."""
        return next(word for word in shlex.split(self.command) if word.endswith(".html"))


def steps(text: str) -> list[Output | Change | Picture]:
    """Returns what a page runs, in order."""
    found: list[Output | Change | Picture] = []
    for match in _MARK.finditer(text):
        kind, head, body = match[1], match[2] or "", (match[3] or "").split("\n")
        if kind == "output":
            found.append(_output(text, match.end(), body))
        elif kind == "change":
            diff = _DIFF.match(text, match.end())
            if not diff:
                raise Mistake(f"no diff after {match[0].strip()}")
            found.append(Change(head, diff[1]))
        else:
            name, size = head.split()
            width, height = size.split("x")
            found.append(Picture(name, int(width), int(height), body[0]))
    return found


def _output(text: str, start: int, body: list[str]) -> Output:
    end = text.find(_END, start)
    if end < 0:
        raise Mistake(f"no `{_END}` after `{body[0]}`")
    expected = [line.removeprefix("expect: ") for line in body[1:] if line.startswith("expect: ")]
    shown = [int(line.removeprefix("shown: ")) for line in body[1:] if line.startswith("shown: ")]
    if len(expected) + len(shown) != len(body) - 1:
        raise Mistake(f"`{body[0]}`: only `expect:` and `shown:` may follow")
    return Output(body[0], start, end, expected, shown[0] if shown else None)
