"""The reports in terminals of four widths: pseudo-terminals, as a user has them."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import termios
import unicodedata
from pathlib import Path

import pytest

from harness import COMMAND, Interpreter, cpythons

WIDTHS = (60, 80, 120, 200)

# A leak and churn in a module whose path is longer than a narrow line.
FOLDER = "a_folder_for_the_company/with_a_folder_for_the_team/and_one_for_the_service"
MODULE = """
class Registry:
    def __init__(self):
        self.entries = []

    def remember_request(self, number):
        self.entries.append([number, str(number)])

def answer(registry, number):
    registry.remember_request(number)
    return "".join([f"<li>{number + n}</li>" for n in range(200)])
"""
PROGRAM = """
import email.message
from service import Registry, answer

registry = Registry()
for number in range(4000):
    answer(registry, number)
"""
COMMANDS = {
    "summary": ["summary"],
    "summary by line": ["summary", "--by", "line"],
    "summary of the end": ["summary", "--at", "end"],
    "tree": ["tree"],
    "explain": ["explain"],
    "leaks": ["leaks"],
    "diff": ["diff", "{profile}"],
    "memory": ["memory"],
}


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("terminal")
    deep = folder / FOLDER
    deep.mkdir(parents=True)
    (deep / "service.py").write_text(MODULE)
    (deep / "app.py").write_text(PROGRAM)
    interpreter: Interpreter = cpythons()[0]
    words = ["run", "-q", "--every", "4K", "--seed", "7", "-o", "app.nthb", f"{FOLDER}/app.py"]
    interpreter.nthbyte(*words, folder=folder).ok()
    return folder / "app.nthb"


def in_terminal(words: list[str | Path], columns: int) -> list[str]:
    """Runs the command in a terminal with so many columns, and returns the lines that it writes."""
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: text for name, text in os.environ.items() if name != "COLUMNS"}
    # In a slow run a terminal also gets a bar of progress, on stderr.
    process = subprocess.Popen(
        [COMMAND, *words], stdin=subprocess.DEVNULL, stdout=its, stderr=subprocess.DEVNULL, env=environment
    )
    os.close(its)
    parts = []
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:
            # The terminal's other side is closed: Linux says EIO then.
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    text = b"".join(parts).decode()
    assert process.wait() == 0, text
    # What sets colours takes no columns.
    return re.sub(r"\x1b\[[0-9;]*m", "", text.replace("\r\n", "\n")).splitlines()


def cells(line: str) -> int:
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in line
    )


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_is_wider_than_the_terminal(command: str, columns: int, profile: Path) -> None:
    [name, *options] = COMMANDS[command]
    words = [name, profile, *[option.format(profile=profile) for option in options]]
    lines = in_terminal(words, columns)
    assert max(map(cells, lines)) <= columns, lines


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("command", ["summary", "leaks"])
def test_a_function_is_named_with_its_place(command: str, columns: int, profile: Path) -> None:
    text = "\n".join(in_terminal([command, profile], columns))
    # The file and the line stay. The path loses its folders first, then the name its middle.
    assert re.search(r"Regist\S*_request\s+\S*service\.py:\d+", text), text
    assert "nthbyte/_run.py" not in text and "importlib" not in text, text


def test_a_wide_terminal_has_more_columns(profile: Path) -> None:
    headings = []
    for columns in WIDTHS:
        [heading] = [line for line in in_terminal(["summary", profile], columns) if "own bytes" in line]
        headings.append(
            [
                name
                for name in ("own bytes", "alive", "survived", "total bytes", "allocs", "young")
                if name in heading
            ]
        )
    # Live bytes are in each of them.
    assert all("alive" in names for names in headings), headings
    assert [len(names) for names in headings] == sorted(len(names) for names in headings)
    assert len(headings[0]) < len(headings[-1]) == 6, headings
