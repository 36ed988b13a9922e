"""The commands that read profiles, with a real profile and with files that are not profiles."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import subprocess
import urllib.parse
from pathlib import Path

import pytest

from harness import BLOCK, COMMAND, Interpreter, cpythons, report, run, summary

PROGRAM = """
import os

class Node:
    def __init__(self, depth):
        self.children = [Node(depth - 1) for _ in range(3)] if depth else []

def build():
    return [Node(5) for _ in range(40)]

kept = build()
text = "".join(str(n) for n in range(100000))
# The C library reads a folder into 32 KiB of native memory.
names = [os.listdir() for _ in range(4)]
"""

# The arguments of each command.
COMMANDS = {
    "summary": ["summary", "{profile}"],
    "summary as JSON": ["summary", "{profile}", "--json"],
    "tree": ["tree", "{profile}"],
    "explain": ["explain", "{profile}"],
    "explain as JSON": ["explain", "{profile}", "--json"],
    "diff": ["diff", "{profile}", "{profile}"],
    "diff as JSON": ["diff", "{profile}", "{profile}", "--json"],
    "flamegraph": ["flamegraph", "{profile}", "-o", "{out}"],
    "firefox": ["export", "{profile}", "--to", "firefox", "-o", "{out}"],
    "pprof": ["export", "{profile}", "--to", "pprof", "-o", "{out}"],
    "speedscope": ["export", "{profile}", "--to", "speedscope", "-o", "{out}"],
    "collapsed": ["export", "{profile}", "--to", "collapsed", "-o", "{out}"],
}
EXPORTS = [name for name, words in COMMANDS.items() if "{out}" in words]
# Reports that can write a page.
PAGES = {
    "page of leaks": ["leaks", "{profile}", "--page", "{out}"],
    "page of diff": ["diff", "{profile}", "{profile}", "--flamegraph", "{out}"],
}


@pytest.fixture(scope="session")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profile")
    (folder / "app.py").write_text(PROGRAM)
    interpreter: Interpreter = cpythons()[0]
    # So few samples that the ring has room for all of them, even if the writer thread never runs.
    words = ["run", "-q", "--every", "4K", "--seed", "7", "-o", "app.nthb", "app.py"]
    interpreter.nthbyte(*words, folder=folder).ok()
    return folder / "app.nthb"


def _words(command: str, profile: Path, out: Path) -> list[str]:
    return [word.format(profile=profile, out=out) for word in (COMMANDS | PAGES)[command]]


@pytest.mark.parametrize("by", ["function", "line", "file", "type"])
def test_summary_adds_up(by: str, profile: Path) -> None:
    found = summary(profile, "--by", by)
    assert (found["period"], found["lost"], found["by"]) == (4096, 0, by)
    assert found["samples"] > 500
    own = sum(row["self_bytes"]["estimate"] for row in found["rows"])
    assert own == pytest.approx(found["all"]["bytes"]["estimate"], rel=1e-6)
    # The estimate differs from the agent's count by at most six standard deviations.
    assert own == pytest.approx(found["bytes_allocated"], rel=6 / found["samples"] ** 0.5)
    for row in found["rows"]:
        for figure in ("self_bytes", "total_bytes", "allocations", "died_young"):
            assert 0 <= row[figure]["low"] <= row[figure]["estimate"] <= row[figure]["high"]


def test_summary_fits_the_width_and_names_the_function(profile: Path) -> None:
    text = report("summary", profile, folder=profile.parent).ok().out
    assert max(map(len, text.splitlines())) <= 100
    assert "Node.__init__" in text
    assert len(summary(profile, "--top", "2")["rows"]) == 2
    assert "Node.__init__" in report("tree", profile, folder=profile.parent).ok().out


def test_collapsed_agrees_with_the_summary(profile: Path) -> None:
    lines = (
        report("export", profile, "--to", "collapsed", "-o", "-", folder=profile.parent).ok().out.splitlines()
    )
    # function (file:line);function (file:line) bytes
    total = sum(int(line.rsplit(" ", 1)[1]) for line in lines)
    assert total == pytest.approx(summary(profile, "--domain", "all")["all"]["bytes"]["estimate"], rel=1e-3)
    assert all(line.startswith("<module> (") for line in lines if "app.py" in line)


@pytest.mark.parametrize("command", EXPORTS)
def test_exported_files_are_complete_and_have_default_names(
    command: str, profile: Path, tmp_path: Path
) -> None:
    out = tmp_path / "written"
    done = report(*_words(command, profile, out), folder=tmp_path).ok()
    assert done.out == ""
    assert done.err == f"nthbyte: wrote {out}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["written"]
    data = out.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    if command in ("firefox", "speedscope"):
        json.loads(data)
    assert b"build" in data or command == "flamegraph"
    # By default the name is the profile's; `-` is standard output.
    named = [word for word in _words(command, profile, out) if word not in ("-o", str(out))]
    report(*named, folder=tmp_path).ok()
    assert {path.name.split(".")[0] for path in tmp_path.iterdir()} == {"written", "app"}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("missing", "No such file"),
        ("folder", "there is no profile in"),
        ("text", "not an nthbyte profile"),
        ("empty", "empty"),
        ("unreadable header", "header"),
        ("newer", "newer"),
    ],
)
def test_a_file_that_is_not_a_profile_is_refused(
    command: str, kind: str, said: str, profile: Path, tmp_path: Path
) -> None:
    data = profile.read_bytes()
    wrong = tmp_path / "wrong.nthb"
    if kind == "folder":
        wrong.mkdir()
    elif kind != "missing":
        wrong.write_bytes(
            {
                "text": b"hello, world\n" * 100,
                "empty": b"",
                "unreadable header": data[:60] + bytes([data[60] ^ 1]) + data[61:],
                "newer": data[:8] + (99).to_bytes(4, "little") + data[12:],
            }[kind]
        )
    done = report(*_words(command, wrong, tmp_path / "out"), folder=tmp_path)
    [line] = done.err.splitlines()
    # A folder stands for its profiles.
    begin = "there is no profile in" if kind == "folder" else "cannot read"
    assert line.startswith(f"nthbyte: {begin} {wrong}")
    assert said in line
    assert (done.status, done.out) == (1, "")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_undamaged_parts_of_a_profile_are_read(command: str, profile: Path, tmp_path: Path) -> None:
    data = profile.read_bytes()
    damaged = tmp_path / "damaged.nthb"
    damaged.write_bytes(data[: len(data) // 2] + bytes(64) + data[len(data) // 2 + 64 :])
    done = report(*_words(command, damaged, tmp_path / "out"), folder=tmp_path).ok()
    assert "damage" in done.err + done.out


@pytest.mark.parametrize("command", EXPORTS)
def test_an_output_that_cannot_be_written_gives_one_line(command: str, profile: Path, tmp_path: Path) -> None:
    for path, said in (
        ("/dev/full", "No space left"),
        ("/proc/out", "folder"),
        (tmp_path / "no/out", "folder"),
    ):
        done = report(*_words(command, profile, Path(path)), folder=tmp_path)
        assert done.status == 1
        assert done.err.startswith(f"nthbyte: cannot write {path}: ")
        assert said in done.err
        assert len(done.err.splitlines()) == 1


def test_a_closed_output_pipe_is_not_an_error(profile: Path, tmp_path: Path) -> None:
    words = [str(COMMAND), "summary", "--json", str(profile)]
    done = run(["sh", "-c", '"$@" | head -c 10; exit 0', "sh", *words], tmp_path)
    assert done.err == ""


@pytest.mark.parametrize("command", ["summary", "summary as JSON", "tree"])
def test_a_full_disk_is_said_of_standard_output(command: str, profile: Path, tmp_path: Path) -> None:
    words = [str(COMMAND), *_words(command, profile, tmp_path)]
    done = run(["sh", "-c", '"$@" > /dev/full', "sh", *words], tmp_path)
    assert done.err == "nthbyte: cannot write to standard output: No space left on device\n"
    assert done.status == 1


def test_nobody_needs_to_read_stderr(profile: Path, tmp_path: Path) -> None:
    def status(*words: str | Path) -> int:
        return run(["sh", "-c", '"$@" 2> /dev/full', "sh", str(COMMAND), *map(str, words)], tmp_path).status

    assert status("flamegraph", profile, "-o", "page.html") == 0
    assert (tmp_path / "page.html").exists()
    assert status("summary", "missing.nthb") == 1
    assert status("summery") == 2


def test_what_is_damaged_of_several_profiles_is_not_said_of_the_first(profile: Path, tmp_path: Path) -> None:
    data = profile.read_bytes()
    words = ["run", "-q", "-o", "whole.nthb", "-c", "pass"]
    cpythons()[0].nthbyte(*words, folder=tmp_path).ok()
    # Inside a block: a profile that ends between two is of a killed process.
    (tmp_path / "cut.nthb").write_bytes(data[:-1])
    [line] = report("tree", "whole.nthb", "cut.nthb", folder=tmp_path).ok().err.splitlines()
    assert line.startswith("nthbyte: one of 2 profiles is damaged at byte ")
    [line] = report("tree", "cut.nthb", folder=tmp_path).ok().err.splitlines()
    assert line.startswith("nthbyte: cut.nthb is damaged at byte ")


def test_leaks_are_those_of_the_domain(profile: Path) -> None:
    def samples(*options: str) -> int:
        words = ["leaks", profile, "--json", *options]
        [of_process] = json.loads(report(*words, folder=profile.parent).ok().out)["profiles"]
        return int(of_process["samples"])

    python, native = (samples("--domain", domain) for domain in ("python", "native"))
    assert samples() == python + native
    assert python == summary(profile)["samples"] > 0 < native


def test_the_commands_of_an_explanation_have_the_domain(profile: Path) -> None:
    words = ["explain", profile, "--domain", "python"]
    answers = json.loads(report(*words, "--json", folder=profile.parent).ok().out)["answers"]
    named = [answer["more"] for answer in answers if str(profile) in answer["more"]]
    assert named and all("--domain=python" in more for more in named)


def test_the_commands_of_an_explanation_can_be_copied(profile: Path, tmp_path: Path) -> None:
    (tmp_path / "-my app.nthb").write_bytes(profile.read_bytes())
    text = report("explain", "--", "-my app.nthb", folder=tmp_path).ok().out
    assert " nthbyte summary './-my app.nthb' --by line\n" in text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_refused(profile: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    done = report("export", profile, "--to", "pprof", "-o", tmp_path / "out", folder=Path("/"))
    assert "ermission denied" in done.err


# Allocates until the file has three more blocks than after the first list, without a time limit.
BLOCKS = """
import sys
def blocks():
    with open(sys.argv[1], "rb") as file:
        return file.read().count(bytes.fromhex(sys.argv[2]))
def build():
    return [[n] for n in range(10_000)]
kept = build()
begun = blocks()
while blocks() < begun + 3:
    build()
"""


def test_a_truncated_profile_has_an_estimate(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(BLOCKS)
    words = ["run", "-q", "--every", "1K", "-o", "app.nthb", "app.py", tmp_path / "app.nthb", BLOCK.hex()]
    cpythons()[0].nthbyte(*words, folder=tmp_path).ok()
    data = (tmp_path / "app.nthb").read_bytes()
    # Cut inside the last block: the first allocations are in the blocks before it.
    last = data.rindex(BLOCK)
    assert data.index(BLOCK) < last
    cut = tmp_path / "cut.nthb"
    cut.write_bytes(data[: (last + len(data)) // 2])
    found = summary(cut)
    assert (found["complete"], found["bytes_counted"]) == (False, False)
    assert len(found["damage"]) == 1
    assert found["bytes_allocated"] == int(found["all"]["bytes"]["estimate"]) > 0


def test_time_samples_are_shown(interpreter: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "import time\n"
        "def churn(n):\n    return sum(len([i] * 9) for i in range(n))\n\n"
        "end = time.process_time() + 1\n"
        "while time.process_time() < end:\n    churn(100000)\n"
    )
    done = interpreter.nthbyte("run", "--cpu", "100", "-o", "app.nthb", "app.py", folder=tmp_path).ok()
    time = summary(tmp_path / "app.nthb")["time"]
    assert f" {time['samples']:,} time samples" in done.err
    assert (time["hz"], time["unit"]) == (100, "seconds")
    assert ("gil_held" not in time) == interpreter.is_pypy
    assert time["samples"] == sum(row["samples"] for row in time["rows"]) > 0
    assert time["whole"] == pytest.approx(sum(row["self_time"]["estimate"] for row in time["rows"]))
    [churn] = [row for row in time["rows"] if row["name"] == "churn"]
    assert churn["total_samples"] > 0.5 * time["samples"]
    for command in ("summary", "tree"):
        shown = report(command, "--time", "app.nthb", folder=tmp_path).ok().out
        assert "churn" in shown
        assert " B " not in shown
    asked = report("summary", "--time", "--json", "app.nthb", folder=tmp_path).ok().out
    assert json.loads(asked)["time"] == time


def test_time_samples_have_one_order(cpython: Interpreter, tmp_path: Path) -> None:
    code = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass"
    words = ["run", "-q", "--cpu", "--every", "1TiB", "--no-native", "-o", "out.nthb", "-c", code]
    cpython.nthbyte(*words, folder=tmp_path).ok()
    assert " time samples, " in report("summary", "out.nthb", folder=tmp_path).ok().out
    done = report("summary", "out.nthb", "--sort", "young", folder=tmp_path)
    [line] = done.err.splitlines()
    assert "--sort is about allocation samples" in line
    assert (done.status, done.out) == (1, "")


def test_a_profile_without_samples_is_said(cpython: Interpreter, tmp_path: Path) -> None:
    cpython.nthbyte("run", "-q", "--every", "1TiB", "-o", "out.nthb", "-c", "pass", folder=tmp_path).ok()
    assert "no samples" in report("summary", "out.nthb", folder=tmp_path).ok().out
    assert "there is no sample: run for longer" in report("leaks", "out.nthb", folder=tmp_path).ok().out


def test_time_without_time_samples_is_an_error(profile: Path) -> None:
    for command in (["summary"], ["summary", "--json"], ["tree"]):
        done = report(*command, "--time", profile, folder=profile.parent)
        [line] = done.err.splitlines()
        assert (done.status, done.out) == (1, "")
        assert line.startswith(f"nthbyte: {profile} has no time samples")


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_sources_are_written_on_request_only(name: str, profile: Path, tmp_path: Path) -> None:
    written = []
    for options in (["--sources"], []):
        words = ["export", profile, "--to", "firefox", "-f", "-o", tmp_path / name, *options]
        report(*words, folder=tmp_path).ok()
        data = (tmp_path / name).read_bytes()
        written.append(gzip.decompress(data) if name.endswith(".gz") else data)
    assert [b"[Node(depth - 1) for _ in range(3)]" in data for data in written] == [True, False]
    assert b"app.py" in written[1]


def test_only_firefox_files_have_sources(profile: Path, tmp_path: Path) -> None:
    done = report("export", profile, "--to", "pprof", "-o", "out", "--sources", folder=tmp_path)
    [line] = done.err.splitlines()
    assert "--sources is for --to firefox only" in line
    assert (done.status, (tmp_path / "out").exists()) == (2, False)


def test_view_serves_sources_on_request_only(profile: Path) -> None:
    served = []
    for options in (["--sources"], []):
        words = [str(COMMAND), "view", "--no-browser", *options, str(profile)]
        view = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert view.stdout
            page = view.stdout.readline().strip()
            address = urllib.parse.urlsplit(
                urllib.parse.unquote(page.partition("/from-url/")[2].split("/")[0])
            )
            connection = http.client.HTTPConnection(address.netloc, timeout=60)
            connection.request("GET", address.path, headers={"Origin": "https://profiler.firefox.com"})
            served.append(gzip.decompress(connection.getresponse().read()))
            connection.close()
        finally:
            view.terminate()
            view.communicate()
    assert [b"[Node(depth - 1) for _ in range(3)]" in data for data in served] == [True, False]


@pytest.mark.parametrize("command", [*EXPORTS, *PAGES])
def test_a_profile_is_never_destroyed(command: str, profile: Path, tmp_path: Path) -> None:
    data = profile.read_bytes()
    ours, other = tmp_path / "ours.nthb", tmp_path / "other.nthb"
    for path in (ours, other):
        path.write_bytes(data)
    (tmp_path / "symbolic").symlink_to(ours)
    (tmp_path / "hard").hardlink_to(ours)
    (tmp_path / "folder").symlink_to(tmp_path)
    for name in ("ours.nthb", "symbolic", "hard", "folder/ours.nthb"):
        for options in ([], ["--force"]):
            done = report(*_words(command, ours, tmp_path / name), *options, folder=tmp_path)
            [line] = done.err.splitlines()
            assert line.startswith(f"nthbyte: cannot write {tmp_path / name}: it is the file that is read")
            assert (done.status, ours.read_bytes()) == (1, data)
    assert "is the file that is read" in _append(_words(command, ours, Path("-")), ours, tmp_path)
    done = report(*_words(command, ours, other), folder=tmp_path)
    [line] = done.err.splitlines()
    assert line.startswith(f"nthbyte: cannot write {other}: it is a profile;")
    assert (done.status, other.read_bytes(), ours.read_bytes()) == (1, data, data)
    assert report(*_words(command, ours, other), "-f", folder=tmp_path).status == 1
    assert other.read_bytes() == data


@pytest.mark.parametrize("command", [*EXPORTS, *PAGES])
def test_a_file_that_exists_stays_without_force(command: str, profile: Path, tmp_path: Path) -> None:
    """Also if nthbyte has written it. An empty one is none."""
    out = tmp_path / "app.py"
    out.write_text("import nthbyte  # the only copy\n")
    for _ in range(2):
        before = out.read_bytes()
        done = report(*_words(command, profile, out), folder=tmp_path)
        why = "it exists; choose another name, or replace it with --force"
        assert done.err == f"nthbyte: cannot write {out}: {why}\n"
        assert (done.status, out.read_bytes()) == (1, before)
        report(*_words(command, profile, out), "-f", folder=tmp_path).ok()
        assert b"the only copy" not in out.read_bytes()
    (tmp_path / "empty").touch()
    report(*_words(command, profile, tmp_path / "empty"), folder=tmp_path).ok()


def _append(words: list[str], path: Path, folder: Path) -> str:
    """Runs a command, appends its standard output to a file, and returns its standard error."""
    before = path.read_bytes()
    done = run(["sh", "-c", '"$@" >> "$0"', str(path), str(COMMAND), *words], folder)
    assert (done.status, path.read_bytes()) == (1, before)
    return done.err


def test_import_does_not_overwrite_its_input_or_a_profile(profile: Path, tmp_path: Path) -> None:
    recorded = tmp_path / "recorded.nthb"
    recorded.write_bytes(profile.read_bytes())
    foreign = tmp_path / "foreign.prof"
    foreign.write_bytes(b"not of vmprof")
    for path, said in ((foreign, "it is the file that is read"), (recorded, "it exists;")):
        before = path.read_bytes()
        done = report("import", foreign, "-o", path, folder=tmp_path)
        [line] = done.err.splitlines()
        assert line.startswith(f"nthbyte: cannot write {path}: {said}")
        assert (done.status, path.read_bytes()) == (1, before)
    [line] = report("import", foreign, "-o", "-", folder=tmp_path).err.splitlines()
    assert "for a terminal" in line
