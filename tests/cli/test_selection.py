"""Parts of a real profile: by time, thread, place and moment, in each report."""

from __future__ import annotations

import base64
import gzip
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

from harness import COMMAND, Interpreter, cpythons, report, run, summary

# An import of many modules; 20 MB that are freed again, 5 MB that stay, 4 MB by a thread; each by its own function.
PROGRAM = """
import http.client
import threading

def many():
    return [bytearray(1000) for _ in range(20_000)]

def few():
    return [bytearray(1000) for _ in range(5_000)]

def work():
    kept.append([bytearray(1000) for _ in range(4_000)])

def temporary():
    for _ in range(5_000):
        bytearray(1000)

kept = []
big = many()
del big
kept.append(few())
temporary()
thread = threading.Thread(target=work, name="worker")
thread.start()
thread.join()
"""

PERIOD = 16 << 10

# The arguments of each report that shows only the selected part.
REPORTS = {
    "tree": ["tree"],
    "collapsed": ["export", "--to", "collapsed", "-o", "-"],
    "firefox": ["export", "--to", "firefox", "-o", "-"],
    "pprof": ["export", "--to", "pprof", "-o", "-"],
    "speedscope": ["export", "--to", "speedscope", "-o", "-"],
    "flamegraph": ["flamegraph", "-o", "-"],
}


@pytest.fixture(scope="session")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("selection")
    (folder / "app.py").write_text(PROGRAM)
    interpreter: Interpreter = cpythons()[0]
    words = ["run", "-q", "--every", str(PERIOD), "--seed", "7", "-o", "app.nthb", "app.py"]
    interpreter.nthbyte(*words, folder=folder).ok()
    return folder / "app.nthb"


def _rows(profile: Path, *options: str) -> dict[str, Any]:
    """Returns the rows of functions in the program's file, by name; `<listcomp>` counts for its function."""
    rows: dict[str, Any] = {}
    for row in summary(profile, *options)["rows"]:
        if row["file"].endswith("app.py"):
            rows[row["name"]] = row
    return rows


def _is_about(estimate: Any, truth: float) -> bool:
    """Whether a figure is right: within six standard deviations, and the list that has the objects."""
    return bool(abs(estimate["estimate"] / truth - 1) < 6 * (PERIOD / truth) ** 0.5 + 0.1)


def test_what_is_alive_is_shown_beside_what_was_allocated(profile: Path) -> None:
    end = _rows(profile)
    assert _is_about(end["many"]["total_bytes"], 21_000_000)
    assert end["many"]["total_alive"]["estimate"] == 0
    assert _is_about(end["few"]["total_alive"], 5_250_000)
    peak = _rows(profile, "--at", "peak")
    assert _is_about(peak["many"]["total_alive"], 21_000_000)
    assert peak["many"]["total_bytes"] == end["many"]["total_bytes"]
    found = summary(profile, "--at", "peak")
    assert found["selection"]["at"] == "peak"
    for moment in ("0s", "end"):
        other = summary(profile, "--at", moment)
        assert other["all"]["alive"]["estimate"] <= found["all"]["alive"]["estimate"]
        assert other["all"]["bytes"] == found["all"]["bytes"]
    assert summary(profile, "--at", "end")["all"]["alive"] == found["all"]["still_live"]
    text = report("summary", profile, "--at", "peak", folder=profile.parent).ok().out
    assert re.search(r"^alive at the peak, .*: .* \(.*\)$", text, re.MULTILINE)
    lines = text.splitlines()
    [heading] = [at for at, line in enumerate(lines) if "own bytes" in line]
    assert "many" in lines[heading + 1], "sorted by what is alive"


def test_sorted_by_what_is_alive(profile: Path) -> None:
    rows = summary(profile, "--sort", "alive")["rows"]
    alive = [row["alive"]["estimate"] for row in rows]
    assert alive == sorted(alive, reverse=True)
    for order, member in (("total", "total_bytes"), ("young", "died_young"), ("allocs", "allocations")):
        figures = [row[member]["estimate"] for row in summary(profile, "--sort", order)["rows"]]
        assert figures == sorted(figures, reverse=True)


def test_threads_times_and_places_divide_the_profile(profile: Path) -> None:
    everything = summary(profile)
    middle = f"{everything['duration_nanos'] // 2000}us"
    before, after = summary(profile, "--until", middle), summary(profile, "--since", middle)
    assert before["samples"] + after["samples"] == everything["samples"]
    both = before["all"]["bytes"]["estimate"] + after["all"]["bytes"]["estimate"]
    assert both == pytest.approx(everything["all"]["bytes"]["estimate"])
    worker = summary(profile, "--thread", "worker")
    assert _is_about(worker["all"]["bytes"], 4_200_000)
    assert "work" in {row["name"] for row in worker["rows"]}
    main = summary(profile, "--thread", "Main*")
    assert main["samples"] + worker["samples"] == everything["samples"]
    app = _rows(profile, "--where", "app.py")
    assert app == _rows(profile, "--where", "app")
    everywhere = _rows(profile)["many"]["self_bytes"]["estimate"]
    assert app["many"]["self_bytes"]["estimate"] == pytest.approx(everywhere)
    # What the module threading called.
    threading = _rows(profile, "--where", "threading", "--thread", "worker")
    # Sums of other samples beside them are rounded otherwise.
    assert threading["work"]["total_bytes"] == pytest.approx(_rows(profile)["work"]["total_bytes"])


def test_temporary_objects(profile: Path) -> None:
    rows = _rows(profile, "--temporary=64KiB")
    assert _is_about(rows["temporary"]["self_bytes"], 5_250_000)
    # Buffers of the lists that grow are temporary too, but nothing that stays.
    assert all(row["alive"]["estimate"] == row["survived"]["estimate"] == 0 for row in rows.values())
    assert sum(row["self_bytes"]["estimate"] for row in rows.values()) < 12_000_000
    assert summary(profile, "--temporary")["selection"]["temporary_bytes"] == 1 << 20


def test_what_was_selected_is_a_sentence(profile: Path) -> None:
    def conditions(*options: str) -> str:
        text = report("summary", profile, *options, folder=profile.parent).ok().out
        return next(line for line in text.splitlines() if line.startswith("only what was "))

    freed = "freed within 64.0 KiB of further allocation"
    assert conditions("--temporary=64KiB") == f"only what was {freed}"
    both = conditions("--temporary=64KiB", "--thread", "worker")
    assert both == f"only what was allocated by thread worker; {freed}"


def test_an_export_says_what_was_selected(profile: Path) -> None:
    words = ["export", "--to", "firefox", "-o", "-", "--at", "peak", "--thread", "MainThread"]
    text = report(*words, profile, folder=profile.parent).ok().out
    said = "only what was allocated by thread MainThread; alive at the peak, "
    assert said in text
    assert said not in report(*words[:5], profile, folder=profile.parent).ok().out


@pytest.mark.parametrize("name", REPORTS)
def test_each_report_takes_a_selection(name: str, profile: Path) -> None:
    command, *options = REPORTS[name]
    texts = []
    for selection in ([], ["--at", "peak"], ["--thread", "worker"], ["--at", "end", "--where", "app.py"]):
        words = [str(COMMAND), command, str(profile), *options, *selection]
        out = profile.parent / "out"
        done = run(["sh", "-c", '"$@" > out', "sh", *words], profile.parent).ok()
        assert done.err == ""
        data = out.read_bytes()
        texts.append(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    assert len(set(texts)) == len(texts)
    if name == "collapsed":
        lines = [text.decode().splitlines() for text in texts]
        sums = [sum(int(line.rsplit(" ", 1)[1]) for line in each) for each in lines]
        assert sums[0] == pytest.approx(
            summary(profile, "--domain", "all")["all"]["bytes"]["estimate"], rel=1e-3
        )
        assert sums[1] == pytest.approx(
            summary(profile, "--domain", "all", "--at", "peak")["all"]["alive"]["estimate"], rel=1e-3
        )


def test_a_selection_without_samples_is_said(profile: Path) -> None:
    selection = ["--thread", "worker", "--until", "1us"]
    for name, words in REPORTS.items():
        # Most of them write bytes.
        shell = ["sh", "-c", '"$@" > /dev/null', "sh", str(COMMAND), words[0], str(profile), *words[1:]]
        done = run([*shell, *selection], profile.parent).ok()
        assert done.err == "nthbyte: no sample is in the selected part\n", name
    text = report("summary", profile, *selection, folder=profile.parent).ok().out
    assert "no samples" in text and "own bytes" not in text


def test_a_tree_of_a_part_is_not_that_of_the_whole_program(profile: Path) -> None:
    whole = report("tree", profile, folder=profile.parent).ok().out
    part = report("tree", profile, "--thread", "worker", folder=profile.parent).ok().out
    assert "the whole program" in whole and "the whole program" not in part
    assert "all that is selected" in part
    # There are many files of this name.
    everything = report("tree", profile, "--top", "0", folder=profile.parent).ok().out
    assert re.search(r"\(\w+/__init__\.py:", everything) and "(__init__.py" not in everything


def test_frames_of_imports_are_folded_in_the_terminal_and_on_pages(profile: Path) -> None:
    def text(*words: str) -> str:
        return report(*words, folder=profile.parent).ok().out

    # The import allocates more than a megabyte itself, so it has samples.
    frozen = "importlib._bootstrap"
    assert frozen not in text("summary", str(profile), "--top", "0")
    assert frozen not in text("tree", str(profile), "--top", "0")
    assert frozen in text("tree", str(profile), "--top", "0", "--all-frames")
    assert frozen in text("export", str(profile), "--to", "collapsed", "-o", "-")
    assert frozen not in text("export", str(profile), "--to", "collapsed", "-o", "-", "--fold-frames")

    def page(*words: str) -> bytes:
        """The data of a page."""
        found = re.search(r'id="data">([^<]+)<', text("flamegraph", str(profile), "-o", "-", *words))
        assert found is not None
        return zlib.decompress(base64.b64decode(found[1]), wbits=-15)

    assert frozen.encode() not in page()
    assert frozen.encode() in page("--all-frames")
    names = {row["name"] for row in summary(profile)["rows"]}
    assert "[import]" not in names
    assert "[import]" in {row["name"] for row in summary(profile, "--fold-frames")["rows"]}
    folded = summary(profile, "--fold-frames")["all"]
    assert folded["bytes"]["estimate"] == pytest.approx(summary(profile)["all"]["bytes"]["estimate"])


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_the_width_of_the_terminal_is_used(columns: int, profile: Path) -> None:
    for command in ("summary", "tree"):
        words = [str(COMMAND), command, str(profile)]
        done = run(words, profile.parent, environment={"COLUMNS": str(columns)}).ok()
        widest = max(map(len, done.out.splitlines()))
        assert widest <= columns
        if command == "summary":
            assert widest > columns * 0.75, done.out
    assert "±231" not in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--since", "1h"], "after the end of the profile"),
        (["--since", "2s", "--until", "1s"], "give a later --until"),
        (["--until", "0s"], "--until 0 leaves nothing"),
        (["--since", "2ms", "--at", "1ms"], "give a later --at"),
        (["--at", "1h"], "after the end of the profile"),
        (["--thread", "nobody"], "MainThread"),
        (["--where", "nowhere.py"], "no frame of the profile is in nowhere.py"),
    ],
)
@pytest.mark.parametrize("command", ["summary", "tree"])
def test_what_is_not_in_the_profile_gives_one_line(
    command: str, words: list[str], said: str, profile: Path
) -> None:
    done = report(command, profile, *words, folder=profile.parent)
    [line] = done.err.splitlines()
    assert line.startswith("nthbyte: ")
    assert said in line
    assert (done.status, done.out) == (1, "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["summary", "x.nthb", "--since", "soon"], "10s"),
        (["summary", "x.nthb", "--since", "-1s"], "'-1s' for '--since <TIME>': write a time as 10s"),
        (["tree", "x.nthb", "--until", "-1s"], "'-1s' for '--until <TIME>': write a time as 10s"),
        (["memory", "x.nthb", "--at", "-1s"], "'-1s' for '--at <peak|end|TIME>': write peak"),
        (["summary", "x.nthb", "--at", "top"], "peak"),
        (["summary", "x.nthb", "--temporary=some"], "512KiB"),
        (["summary", "x.nthb", "--sort", "name"], "alive"),
        (["tree", "x.nthb", "--all-frames", "--fold-frames"], "--fold-frames"),
        (["summary", "x.nthb", "--topp", "3"], "; tip: a similar argument exists: '--top'; see"),
        # What looks like an option is hardly ever meant as a profile's name.
        (["summary", "x.nthb", "--colour"], "argument '--colour' found; see"),
    ],
)
def test_wrong_options_give_one_line(words: list[str], said: str, tmp_path: Path) -> None:
    done = report(*words, folder=tmp_path)
    [line] = done.err.splitlines()
    assert said in line
    assert done.status == 2
