"""Names designed to break what reads them, of all that a profile names, in each report, page and export."""

from __future__ import annotations

import gzip
import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest

import harness
from formats import protobuf

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


def strings_of_pprof(content: bytes) -> list[str]:
    """Returns the table of strings, after a check that each function, mapping and label refers to one."""
    profile = protobuf.fields(gzip.decompress(content))
    strings = [text.decode() for text in profile[6]]
    assert strings[0] == ""
    functions = [protobuf.fields(one) for one in profile[5]]
    labels = [protobuf.fields(one) for sample in profile[2] for one in protobuf.fields(sample)[3]]
    # `name`, `system_name` and `filename`; `key`, `str`.
    texts = [text for one in functions for field in (2, 3, 4) for text in one[field]]
    texts += [text for one in labels for field in (1, 2) for text in one[field]]
    assert texts and max(texts) < len(strings)
    lines = [line for location in profile[4] for line in protobuf.fields(location)[4]]
    assert {protobuf.fields(line)[1][0] for line in lines} <= {one[1][0] for one in functions}
    return strings


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
    harness.report("export", hostile, "--to", to, "-f", "-o", out, folder=tmp_path).ok()
    content = out.read_bytes()
    if to in ("firefox", "speedscope"):
        names = texts(json.loads(content))
        assert {name for name in names if SCRIPT in name}
        assert {name for name in names if "\x9b2J" in name}
    elif to == "pprof":
        names = set(strings_of_pprof(content))
        assert {name for name in names if SCRIPT in name}
        assert {name for name in names if "\x9b2J" in name}
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


# Names that the interpreters allow: in no name of a type or file is a NUL.
PROGRAM = """
import threading
NAMES = ["red\\x1b[31m\\x07", "two\\nlines", "</script><script>alert(1)</script>"]
NAMES += ["\\u202etxet", "c1 \\x9b2J", "a;b \\u2028 c"]
def function(name):
    space = {"Kept": type(name, (), {"__module__": name})}
    exec(compile("def f(n): return [Kept() for _ in range(n)]", f"/srv/{name}.py", "exec"), space)
    f = space["f"]
    names = {"co_name": name, "co_qualname": f"Class.{name}"}
    f.__code__ = f.__code__.replace(**{key: names[key] for key in names if hasattr(f.__code__, key)})
    return f
kept = []
for name in NAMES:
    f = function(name)
    thread = threading.Thread(target=lambda: kept.extend(f(5_000)), name=name)
    thread.start()
    thread.join()
"""
SHOWN = [
    ["memory"],
    ["summary", "--by", "type"],
    ["summary", "--by", "file", "--where", "/srv/"],
    ["explain"],
]


def test_names_of_a_real_program(interpreter: harness.Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    profile = tmp_path / "out.nthb"
    interpreter.nthbyte(
        "run", "--every", "4KiB", "-o", profile, "app.py", "\x1b[2J\u202e", folder=tmp_path
    ).ok()
    for command, *options in SHOWN:
        done = harness.report(command, profile, *options, folder=tmp_path).ok()
        assert done.out and harmful(done.out + done.err) == set(), (command, *options)
    for by in ("function", "type", "file"):
        names = texts(harness.summary(profile, "--by", by))
        for part in ("\x1b[31m\x07", SCRIPT, "\u202etxet", "\x9b2J", "a;b \u2028 c"):
            assert {name for name in names if part in name}, (by, part)
    out = tmp_path / "out.pb.gz"
    harness.report("export", profile, "--to", "pprof", "-o", out, folder=tmp_path).ok()
    names = set(strings_of_pprof(out.read_bytes()))
    for part in ("\x1b[31m\x07", SCRIPT, "\u202etxet", "\x9b2J"):
        assert {name for name in names if part in name}, part
