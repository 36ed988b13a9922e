"""``nthbyte live`` in a pseudo-terminal."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import harness
from harness import COMMAND, Interpreter

# What a terminal is told besides text: it moves, clears and colours.
CONTROL = re.compile(r"\x1b(?:\[([0-9;?]*)([A-Za-z])|[()].|[=>78])")
COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-7]|9[0-7]|38;[0-9;]+)m")

WORK = """
import sys, time
def growing(): return [bytearray(1000) for _ in range(1000)]
kept = growing()
open("begun", "w").close()
while not sys.stdin.closed and not __import__("os").path.exists("end"):
    kept += growing()
    time.sleep(0.01)
    del kept[:1000]
"""


class Screen:
    """A program in a pseudo-terminal of 80 columns and 24 lines."""

    def __init__(self, words: list[str], folder: Path, **variables: str):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(harness.SITE), **variables}
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            words,
            cwd=folder,
            env=environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        self.slave = slave
        self.text = ""
        # A read may end within a character.
        self.decoder = codecs.getincrementaldecoder("utf-8")()

    def until(self, *parts: str) -> str:
        """Waits until these texts are on the screen, and returns all that was written."""
        end = time.monotonic() + 600
        while not all(part in self.shown() for part in parts):
            assert time.monotonic() < end and self.process.poll() is None, (parts, self.shown())
            self._read()
        return self.text

    def shown(self) -> str:
        """The lines of the screen. Only cells that change are written, each after a move to its place."""
        cells: dict[tuple[int, int], str] = {}
        row = column = 1
        at = 0
        while at < len(self.text):
            if found := CONTROL.match(self.text, at):
                at = found.end()
                if found[2] == "H":
                    row, column = map(int, (found[1] or "1;1").split(";"))
                elif found[2] == "J":
                    cells.clear()
                continue
            cells[row, column] = self.text[at]
            column, at = column + 1, at + 1
        lines = ("".join(cells.get((row, column), " ") for column in range(1, 81)) for row in range(1, 25))
        return "\n".join(lines)

    def press(self, key: str) -> None:
        """Presses a key."""
        os.write(self.master, key.encode())

    def end(self) -> int:
        """Waits for the end. Returns the status; the terminal is as it was."""
        end = time.monotonic() + 600
        while self.process.poll() is None:
            assert time.monotonic() < end, self.text
            self._read()
        self._read()
        assert termios.tcgetattr(self.slave)[:6] == self.before[:6]
        assert "\x1b[?1049l" in self.text
        os.close(self.slave), os.close(self.master)
        return self.process.returncode

    def _read(self) -> None:
        if select.select([self.master], [], [], 0.1)[0]:
            self.text += self.decoder.decode(os.read(self.master, 65536))


def test_a_profile_is_shown_and_keys_work(tmp_path: Path) -> None:
    code = "def kept(): return [bytearray(1000) for _ in range(5000)]\nall = kept()"
    Interpreter(sys.executable).nthbyte(
        "run", "-q", "--holders", "--every", "1KiB", "-o", "a.nthb", "-c", code, folder=tmp_path
    ).ok()
    screen = Screen([str(COMMAND), "live", "a.nthb"], tmp_path, NO_COLOR="1")
    shown = screen.until("RSS", "rate", "kept", "function", "q quit", "ended")
    assert not COLOUR.search(shown)
    screen.press("t")
    screen.until("bytearray buffer")
    screen.press("w")
    screen.until("retained", "list of 5,000")
    screen.press("w")
    screen.until("bytearray buffer")
    screen.press("/")
    screen.until("Enter takes it")
    screen.press("nothing such\r")
    screen.until("nothing has")
    screen.press("q")
    assert screen.end() == 0


LABELLED = """
import nthbyte

def make(endpoint):
    with nthbyte.label(endpoint=endpoint, tenant="a"):
        return [bytearray(1000) for _ in range(3000)]

kept = make("/cart"), make("/checkout")
"""


def test_labels_are_shown(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(LABELLED)
    options = ["-q", "--holders", "--every", "1KiB", "-o", "a.nthb"]
    Interpreter(sys.executable).nthbyte("run", *options, "app.py", folder=tmp_path).ok()
    words = [str(COMMAND), "live", "a.nthb", "--by", "label:endpoint", "--label", "endpoint=/c*"]
    screen = Screen(words, tmp_path, NO_COLOR="1")
    screen.until("only endpoint=/c*", "  endpoint", "/cart", "/checkout")
    screen.press("w")
    screen.until("held by kept[0]", "/cart", "/checkout")
    screen.press("w")
    screen.until("  endpoint", "/cart")
    screen.press("l")
    screen.until("  tenant", "  a ")
    screen.press("l")
    screen.until("  labels", "endpoint=/cart tenant=")
    screen.press("t")
    screen.until("  function", "make")
    screen.press("L")
    screen.until("KEY=VALUE: ", "Enter takes it")
    screen.press("endpoint=/nowhere\r")
    screen.until("only endpoint=/nowhere", "nothing has endpoint=/nowhere")
    assert "make" not in screen.shown()
    screen.press("\x1b")
    screen.until("  function", "make")
    assert "only" not in screen.shown()
    screen.press("q")
    assert screen.end() == 0


def test_labels_of_a_command(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(LABELLED + "import time\ntime.sleep(600)")
    start = [sys.executable, "-m", "nthbyte", "live"]
    screen = Screen([*start, "--by=label:endpoint", "--", "-o", "app.nthb", "app.py"], tmp_path)
    screen.until("  endpoint", "/cart", "/checkout")
    screen.press("q")
    assert screen.end() == 0
    for words, said in ((["4711"], "not 4711"), (["--by"], "not --by"), (["--by=line"], "write function")):
        screen = Screen([*start, *words, "--", "app.py"], tmp_path)
        assert screen.process.wait(600) == 2
        screen._read()
        assert said in screen.text


def test_the_view_ends_with_its_terminal(tmp_path: Path) -> None:
    """It has no SIGHUP in a session of its own, and the end of a file is there to be read for ever."""
    Interpreter(sys.executable).nthbyte("run", "-q", "-o", "a.nthb", "-c", "pass", folder=tmp_path).ok()
    screen = Screen([str(COMMAND), "live", "a.nthb"], tmp_path)
    screen.until("q quit")
    os.close(screen.slave), os.close(screen.master)
    screen.process.wait(600)


def test_a_running_process_is_followed(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(WORK)
    words = [sys.executable, "-m", "nthbyte", "run", "-q", "-o", "app.nthb", "app.py"]
    environment = {**os.environ, "PYTHONPATH": str(harness.SITE)}
    with subprocess.Popen(words, cwd=tmp_path, env=environment, stdin=subprocess.PIPE) as running:
        while not (tmp_path / "begun").exists():
            assert running.poll() is None
            time.sleep(0.02)
        screen = Screen([str(COMMAND), "live", str(running.pid)], tmp_path)
        assert COLOUR.search(screen.until("growing", "q quit"))
        # It has not ended, and then it has.
        assert "ended" not in screen.shown()
        (tmp_path / "end").touch()
        screen.until("ended")
        screen.press("q")
        assert screen.end() == 0


def test_a_process_that_is_not_recorded_is_while_it_is_viewed(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(WORK)
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with subprocess.Popen(
        [sys.executable, "app.py"], cwd=tmp_path, env=own, stdin=subprocess.PIPE
    ) as running:
        while not (tmp_path / "begun").exists():
            assert running.poll() is None
            time.sleep(0.02)
        screen = Screen([str(COMMAND), "live", str(running.pid)], tmp_path)
        screen.until("growing", "q quit")
        screen.press("q")
        assert screen.end() == 0
        profile = f"nthbyte-app.{running.pid}.nthb"
        assert f"samples; see it with: nthbyte explain {profile}" in screen.text
        assert harness.summary(tmp_path / profile)["complete"]
        assert "is not recorded" in harness.report("detach", str(running.pid), folder=tmp_path).err
        (tmp_path / "end").touch()
        assert running.wait() == 0


def test_a_command_is_run_and_ends_with_the_view(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("print('said', flush=True)\n" + WORK)
    words = [sys.executable, "-m", "nthbyte", "live", "--", "-o", "app.nthb", "app.py"]
    screen = Screen(words, tmp_path)
    screen.until("growing", "q quit")
    screen.press("\x03")
    assert screen.end() == 0
    assert "nthbyte explain app.nthb; what the program has printed is in app.nthb.out" in screen.text
    assert (tmp_path / "app.nthb.out").read_text() == "said\n"
    assert harness.summary(tmp_path / "app.nthb")["samples"] > 0


def test_what_cannot_be_shown_is_said(tmp_path: Path) -> None:
    done = harness.report("live", "a.nthb", folder=tmp_path)
    assert done.status == 1
    assert done.err == "nthbyte: live needs a terminal; nthbyte explain shows a profile as text\n"
    other = subprocess.Popen(["sleep", "600"])
    try:
        screen = Screen([str(COMMAND), "live", str(other.pid)], tmp_path)
        screen.process.wait()
        screen._read()
    finally:
        other.kill()
        other.wait()
    assert f"process {other.pid} runs no CPython" in screen.text
