"""The tokens of a Rust file, and its comments."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
    (?P<line_comment>//[^\n]*)
  | (?P<block_comment>/\*)
  | (?P<raw_string>(?:br|cr|r)(?P<marks>\#*)")
  | (?P<string>[bc]?"(?:[^"\\]|\\.)*")
  | (?P<character>b?'(?:[^'\\\n]|\\(?:u\{[^}]*\}|x..|.))')
  | (?P<lifetime>'[A-Za-z_]\w*)
  | (?P<name>(?:r\#)?[A-Za-z_]\w*)
  | (?P<number>\d[\w.]*?(?=\.\.|[^\w.]|$))
  | (?P<sign>::|=>|->|\S)
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    """A name, a sign, or a string with its quotes. A raw string is an empty one."""

    text: str
    line: int
    is_name: bool = False


@dataclass(frozen=True)
class Comment:
    """A comment, with its first line."""

    text: str
    line: int


def split(source: str) -> tuple[list[Token], list[Comment]]:
    """Returns the tokens and the comments of Rust source text."""
    tokens: list[Token] = []
    comments: list[Comment] = []
    at, line = 0, 1
    while match := _TOKEN.search(source, at):
        line += source.count("\n", at, match.start())
        end = match.end()
        if match["line_comment"]:
            comments.append(Comment(match[0], line))
        elif match["block_comment"]:
            end = _end_of_block_comment(source, match.start())
            comments.append(Comment(source[match.start() : end], line))
        elif match["raw_string"]:
            closing = source.find('"' + match["marks"], end)
            end = len(source) if closing < 0 else closing + 1 + len(match["marks"])
            tokens.append(Token('""', line))
        elif match["string"]:
            tokens.append(Token(match[0], line))
        elif match["name"]:
            tokens.append(Token(match[0].removeprefix("r#"), line, is_name=True))
        elif match["sign"]:
            tokens.append(Token(match[0], line))
        line += source.count("\n", match.start(), end)
        at = end
    return tokens, comments


def _end_of_block_comment(source: str, start: int) -> int:
    depth = 0
    for mark in re.finditer(r"/\*|\*/", source[start:]):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return start + mark.end()
    return len(source)
