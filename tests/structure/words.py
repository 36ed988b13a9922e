"""Finds words that the project no longer uses."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from structure import tokens
from structure.files import sources


@dataclass(frozen=True)
class Text:
    """An identifier or a comment, with its line."""

    text: str
    line: int
    is_identifier: bool


def check(root: Path, words: dict[str, Any]) -> Iterator[str]:
    """Yields a line for each forbidden word."""
    phrases = {re.compile(phrase, re.IGNORECASE): better for phrase, better in words["phrases"].items()}
    for path in _paths(root, words["files"]):
        seen: set[str] = set()
        for text in _texts(path):
            found = _in_identifier(text, words) if text.is_identifier else _in_prose(text, phrases)
            for word, better, line in found:
                # An identifier may be in many lines; only the first is reported.
                if not text.is_identifier or word not in seen:
                    yield f"{path.relative_to(root)}:{line}: `{word}`: say {better}"
                seen.add(word)


def _in_identifier(text: Text, words: dict[str, Any]) -> Iterator[tuple[str, str, int]]:
    known = [words["parts"][part] for part in parts(text.text) if part in words["parts"]]
    better = words["identifiers"].get(text.text) or next(iter(known), None)
    if better:
        yield text.text, better, text.line


def _in_prose(text: Text, phrases: dict[re.Pattern[str], str]) -> Iterator[tuple[str, str, int]]:
    for phrase, better in phrases.items():
        for match in phrase.finditer(text.text):
            yield match[0], better, text.line + text.text.count("\n", 0, match.start())


def parts(name: str) -> list[str]:
    """Returns the words of an identifier in lower case: `DealtList_of` has `dealt`, `list`, `of`."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def _paths(root: Path, where: dict[str, Any]) -> Iterator[Path]:
    suffixes = [".rs", ".py", ".ts", ".mjs", ".md"]
    yield from sources(root, where["folders"], suffixes, where["left_out"])
    for name in where["documents"]:
        if (root / name).exists():
            yield root / name


def _texts(path: Path) -> Iterator[Text]:
    source = path.read_text()
    if path.suffix == ".md":
        yield Text(source, 1, is_identifier=False)
    elif path.suffix == ".py":
        yield from _of_python(source)
    else:
        names, comments = tokens.split(source)
        if path.suffix == ".rs":
            yield from (Text(name.text, name.line, True) for name in names if name.is_name)
        yield from (Text(comment.text, comment.line, False) for comment in comments)


def _of_python(source: str) -> Iterator[Text]:
    begins_statement = True
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            yield Text(token.string, token.start[0], is_identifier=True)
        elif token.type == tokenize.COMMENT or (token.type == tokenize.STRING and begins_statement):
            yield Text(token.string, token.start[0], is_identifier=False)
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            begins_statement = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
