"""What makes the pages of the guide, and what checks them, on pages of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import commands
import links
import outputs
import reference
from transcript import Change, Mistake, Output, Picture, steps

PAGE = """# A page

<!-- output
{python} count.py
expect: ^number \\d+$
shown: 2
-->
<!-- end -->

<!-- change: count.py -->
```diff
-print("number", 1)
+print("number", 2)
```

<!-- output
{python} count.py
expect: {second}
-->
<!-- end -->
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(outputs, "FOLDER", tmp_path / "work")
    (tmp_path / "count.py").write_text('print("number", 1)\nprint("more")\nprint("and more")\n')
    path = tmp_path / "page.md"
    path.write_text(PAGE.format(python=sys.executable, second="number 2"))
    return path


def test_outputs_are_written_and_then_right(page: Path) -> None:
    assert outputs.perform(page, is_check=False) == []
    text = page.read_text()
    assert f"```text\n$ {sys.executable} count.py\nnumber 1\nmore\n…\n```\n\n<!-- end -->" in text
    assert "number 2\nmore\nand more\n```" in text
    assert outputs.perform(page, is_check=True) == []
    assert outputs.perform(page, is_check=False) == []
    assert page.read_text() == text


def test_an_output_that_is_not_as_expected(page: Path) -> None:
    outputs.perform(page, is_check=False)
    page.write_text(page.read_text().replace("number 2\nmore", "number 9\nmore"))
    [wrong] = outputs.perform(page, is_check=True)
    assert "in the page" in wrong
    page.write_text(PAGE.format(python=sys.executable, second="number 3"))
    _, now, there = outputs.perform(page, is_check=True)
    assert "in what it prints now:\nnumber 2" in now
    assert "in the page" in there


def test_a_program_that_fails(page: Path) -> None:
    (page.parent / "count.py").write_text("raise ValueError")
    with pytest.raises(Mistake, match="ends with status 1"):
        outputs.perform(page, is_check=True)


def test_a_page_that_is_right_in_one_run_of_four(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[list[str]] = []
    monkeypatch.setattr(outputs, "perform", lambda _page, is_check: answers.pop())
    for options, wrong, status in ((["--check"], 3, 0), (["--check"], 4, 1), ([], 1, 1)):
        monkeypatch.setattr(sys, "argv", ["outputs.py", *options, str(outputs.DOCS / "index.md")])
        answers[:] = [[]] + [["wrong"]] * wrong
        assert outputs.main() == status


def test_a_change_that_does_not_fit() -> None:
    change = Change("a.py", "-one\n+two\n")
    assert change.apply("one\nthree\n") == "two\nthree\n"
    with pytest.raises(Mistake, match="0 times"):
        change.apply("three\n")
    with pytest.raises(Mistake, match="2 times"):
        change.apply("one\none\n")


def test_steps_of_a_page() -> None:
    text = (
        "<!-- picture: a.png 800x600\nnthbyte flamegraph a.nthb -o a.html\n-->\n"
        "<!-- output\necho a\n-->\n<!-- end -->\n"
    )
    picture, output = steps(text)
    assert isinstance(picture, Picture)
    assert (picture.name, picture.width, picture.height, picture.page) == ("a.png", 800, 600, "a.html")
    assert isinstance(output, Output)
    for wrong in (
        "<!-- output\necho a\n-->\n",
        "<!-- output\necho a\nwrong: b\n-->\n<!-- end -->\n",
        "<!-- change: a -->\n",
    ):
        with pytest.raises(Mistake):
            steps(wrong)


def test_links(tmp_path: Path) -> None:
    other = tmp_path / "other.md"
    other.write_text("# `one` and Two: *three*\n\n# Twice\n\n# Twice\n")
    assert links.anchors(other) == {"one-and-two-three", "twice", "twice-1"}
    here = tmp_path / "here.md"
    here.write_text("[a](other.md#twice-1) [b](https://example.org/c) `[d](no.md)`\n```\n[e](no.md)\n```\n")
    assert list(links.wrong_links(here)) == []
    here.write_text("[a](other.md#thrice) [b](no.md) [c](#no)")
    assert list(links.wrong_links(here)) == [
        "other.md has no heading #thrice",
        "there is no no.md",
        "this page has no heading #no",
    ]


def test_pages_that_load_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "ROOT", tmp_path)
    (tmp_path / "a.html").write_text(
        '<script src="https://a.example/x.js"></script><img src="b.png"><a href="https://c.example">c</a>'
        '<link rel="stylesheet" href="//d.example/e.css"><link rel="canonical" href="https://f.example">'
    )
    assert list(links.requests(tmp_path)) == [
        "a.html: loads https://a.example/x.js",
        "a.html: loads //d.example/e.css",
    ]


def test_the_form_of_a_help_text() -> None:
    assert reference._form("-o OUT, --output OUT  where\n   to write") == reference._form(
        "-o, --output OUT where to write"
    )
    assert reference._form("--every SIZE") != reference._form("--each SIZE")


def test_commands_and_options_of_the_documents() -> None:
    known = {"run": {"--every": True, "-o": True, "-m": True}, "leaks": {"--fail": False}}
    right = [
        "`nthbyte run --every 1KiB -o a.nthb app.py --its-own`",
        "```\n$ nthbyte run -m pytest -q  # --comment\nnthbyte leaks --fail a.nthb\n```\n",
        "`nthbyte run --fixed`",
        "nthbyte leaks --no-code and `nthbyte samples one in every n`",
    ]
    assert [list(commands.wrong_commands(text, known)) for text in right] == [[], [], [], []]
    wrong = (
        "`nthbyte run --evry 1 app.py`\n\n    nthbyte leaks a.nthb --json\n\n```\nnthbyte leak --fail\n```\n"
    )
    assert list(commands.wrong_commands(wrong, known)) == [
        "`nthbyte run` has no --evry",
        "`nthbyte leaks` has no --json",
        "there is no `nthbyte leak`",
    ]
    assert {"--sort", "--at", "--top", "--where"} <= commands.known()["summary"].keys()
