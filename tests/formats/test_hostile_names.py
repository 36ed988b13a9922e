"""Names designed to break what reads them, of functions, types, threads and labels, in each report and export."""

from __future__ import annotations

import gzip
import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest

import harness

REPORTS = {
    "summary": ["summary"],
    "summary by line": ["summary", "--by", "line", "--top", "0"],
    "summary by file": ["summary", "--by", "file", "--top", "0"],
    "summary by type": ["summary", "--by", "type", "--top", "0"],
    "summary of a thread": ["summary", "--thread", "MainThread"],
    "summary of time": ["summary", "--time"],
    "tree": ["tree"],
    "explain": ["explain"],
    "leaks": ["leaks"],
    "diff": ["diff", "{profile}", "--by", "type"],
}
JSON = [name for name in REPORTS if name not in ("tree", "summary of time")]
SCRIPT = "<script>alert(1)</script>"


def harmful(text: str) -> set[str]:
    """Returns the characters that a terminal obeys, or that change how others are shown."""
    kinds = {sign: unicodedata.category(sign) for sign in set(text)}
    return {sign for sign, kind in kinds.items() if kind in ("Cc", "Cf", "Zl", "Zp") and sign != "\n"}


def texts(value: Any) -> set[str]:
    """Returns all texts of a JSON value, the names of members too."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, dict):
        return set(value).union(*(texts(one) for one in value.values()))
    if isinstance(value, list):
        return set().union(*(texts(one) for one in value))
    return set()


def words(name: str, hostile: Path) -> list[str | Path]:
    command, *options = REPORTS[name]
    return [command, hostile, *(word.format(profile=hostile) for word in options)]


@pytest.mark.parametrize("name", REPORTS)
def test_reports_have_nothing_that_a_terminal_obeys(name: str, hostile: Path, tmp_path: Path) -> None:
    done = harness.report(*words(name, hostile), folder=tmp_path).ok()
    assert done.out
    assert harmful(done.out + done.err) == set()
    # A name of ten thousand characters does not take a page.
    assert max(map(len, done.out.splitlines())) < 500 or "--top" in REPORTS[name]


@pytest.mark.parametrize("name", JSON)
def test_json_escapes_them_and_has_them_unchanged(name: str, hostile: Path, tmp_path: Path) -> None:
    done = harness.report(*words(name, hostile), "--json", folder=tmp_path).ok()
    assert harmful(done.out) == set()
    names = texts(json.loads(done.out))
    if name in ("summary", "summary by type"):
        assert {name for name in names if "\x1b" in name}
        assert {name for name in names if "\u202e" in name}


@pytest.mark.parametrize("to", ["firefox", "pprof", "speedscope", "collapsed"])
def test_exports_have_the_names_of_types_threads_and_labels(to: str, hostile: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    harness.report("export", hostile, "--to", to, "-o", out, folder=tmp_path).ok()
    content = out.read_bytes()
    if to in ("firefox", "speedscope"):
        names = texts(json.loads(content))
        assert {name for name in names if SCRIPT in name}
        assert {name for name in names if "\x9b2J" in name}
    elif to == "pprof":
        names = gzip.decompress(content)
        assert SCRIPT.encode() in names and "\x9b2J".encode() in names
    else:
        lines = content.decode().split("\n")
        assert lines.pop() == ""
        assert all(re.fullmatch(r".* \d+", line) for line in lines)
        assert not [sign for sign in harmful("\n".join(lines)) if unicodedata.category(sign) != "Cf"]


@pytest.mark.parametrize("command", [["flamegraph"], ["leaks", "--page"]])
def test_pages_have_no_markup_of_theirs(command: list[str], hostile: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    first, *options = command
    done = harness.report(first, hostile, *options, *(["-o"] if not options else []), page, folder=tmp_path)
    assert page.exists(), done.err
    assert harmful(done.out + done.err) == set()
    text = page.read_text()
    assert "alert(1)</script>" not in text
    # As many elements as a page of names that harm nobody has.
    assert len(re.findall(r"<script\b", text)) == len(re.findall(r"</script>", text))
