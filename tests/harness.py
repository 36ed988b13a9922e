"""The interpreters of the tests, and how a program runs on one.

The interpreters are from pyenv, from the system, and from the folders in ``build/interpreters`` (``make
interpreters``; NTHBYTE_INTERPRETERS names another folder). Each of these folders is a small Debian. It is
entered with chroot in its own mount namespace, so that nothing stays mounted.

All use the same nthbyte: the wheel, unpacked in ``build/site``.
"""

from __future__ import annotations

import functools
import gzip
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
SITE = REPOSITORY / "build" / "site"
COMMAND = SITE / "nthbyte" / "bin" / "nthbyte"
SCRIPT = SITE / "bin" / "nthbyte"

# The folders of `make interpreters`.
_TREES = Path(os.environ.get("NTHBYTE_INTERPRETERS") or REPOSITORY / "build" / "interpreters")

# `make test-all` sets the variable: each test runs on every interpreter, and with all its cases.
IS_ALL = bool(os.environ.get("NTHBYTE_EVERY_INTERPRETER"))

# The first bytes of each block of a profile.
BLOCK = b"\xf5nbk"

# For programs: uses up CPU time of the calling thread.
SPEND = """
import time

def spend(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
"""

# Folders that have the same paths inside a chroot.
_SHARED = ("/proc", "/dev", tempfile.gettempdir(), str(REPOSITORY))

_ENTER = """
tree=$1 folder=$2; shift 2
for shared in {shared}; do
    mkdir -p "$tree$shared" && mount --rbind "$shared" "$tree$shared" || exit 125
done
exec chroot "$tree" /bin/sh -c 'cd "$0" && exec "$@"' "$folder" "$@"
"""

_PROBE = """
import sys, json
print(json.dumps([sys.implementation.name, list(getattr(sys, "pypy_version_info", sys.version_info)[:3]),
                  list(sys.version_info[:2]), getattr(sys, "_is_gil_enabled", lambda: True)()]))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python to test with."""

    path: str
    tree: str | None = None
    """The folder of its Debian; None for an interpreter of this system."""

    def __str__(self) -> str:
        name, version, _, _ = self.about
        where = Path(self.tree).name if self.tree else "pyenv" if "pyenv" in self.path else "system"
        if self.is_free_threaded:
            where = "freethreaded"
        return f"{name}-{'.'.join(map(str, version))}-{where}"

    @property
    def is_pypy(self) -> bool:
        return bool(self.about[0] == "pypy")

    @property
    def is_free_threaded(self) -> bool:
        return not self.about[3]

    @property
    def python_version(self) -> tuple[int, int]:
        """The version of the language: (3, 13)."""
        return tuple(self.about[2])

    @functools.cached_property
    def about(self) -> Any:
        done = subprocess.run(self.words(["-c", _PROBE], "/"), capture_output=True, text=True, timeout=1200)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def words(self, arguments: list[str], folder: str | Path) -> list[str]:
        """The command line that runs this interpreter in a folder."""
        if self.tree is None:
            return [self.path, *arguments]
        enter = _ENTER.format(shared=shlex.join(_SHARED))
        inside = [self.tree, str(folder), self.path, *arguments]
        return ["unshare", "--mount", "sh", "-c", enter, "sh", *inside]

    def python(self, *arguments: str | Path, folder: Path, **options: Any) -> Done:
        """Runs the interpreter plainly."""
        return run(self.words([str(word) for word in arguments], folder), folder, **options)

    def nthbyte(
        self, *arguments: str | Path, folder: Path, flags: tuple[str, ...] = (), **options: Any
    ) -> Done:
        """Runs ``python FLAGS -m nthbyte ARGUMENTS``."""
        return self.python(*flags, "-m", "nthbyte", *arguments, folder=folder, **options)


def example(name: str) -> Path:
    """An example of a crate (`libNAME.so` if it is a library), built for debugging.

    It is built as `cargo test` builds the workspace: one package alone would have its dependencies built once more,
    with other features.
    """
    build = ["cargo", "build", "--quiet", "--locked", "--workspace", "--all-features", "--example"]
    build.append(name.removeprefix("lib").removesuffix(".so"))
    subprocess.run(build, cwd=REPOSITORY, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR") or REPOSITORY / "target")
    return target / "debug" / "examples" / name


# Variables of the developer's shell that change what a program does.
_OF_A_SHELL = re.compile("PYTHON|PYPY|MALLOC_|(COLUMNS|GLIBC_TUNABLES|LD_PRELOAD)$")


@dataclass(frozen=True)
class Done:
    """A process that has ended."""

    status: int
    """Exit status; minus the number of the signal that killed it."""
    out: str
    err: str

    def ok(self) -> Done:
        """Checks that it succeeded."""
        assert self.status == 0, f"exit status {self.status}\n{self.out[-2000:]}\n{self.err[-4000:]}"
        return self


def run(
    words: list[str],
    folder: Path,
    *,
    stdin: str = "",
    until: Callable[[], bool] | None = None,
    timeout: float = 1200,
    idle: float = math.inf,
    environment: dict[str, str] | None = None,
) -> Done:
    """Runs a command in a folder. PYTHONPATH has the nthbyte to test.

    PyPy's nursery has 4 MiB unless ``environment`` says otherwise: by default its size follows the processor's cache,
    up to 130 MiB, and then a short program has no collection.

    Its standard input ends when ``until`` returns true, so a program can wait for the test. The time limit is only for
    programs that hang. Those that are expected to are ended after ``idle`` seconds in which they use no CPU time, for
    then a slow machine does not matter.
    """
    always = {"PYTHONPATH": str(SITE), "PYTHONDONTWRITEBYTECODE": "1", "PYPY_GC_NURSERY": "4M"}
    own = {name: value for name, value in os.environ.items() if not _OF_A_SHELL.match(name)}
    variables = {**own, **always, **(environment or {})}
    process = subprocess.Popen(
        words,
        cwd=folder,
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A parent process may ignore SIGINT. Then Python would not receive Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    )
    end = time.monotonic() + timeout
    try:
        while until and process.poll() is None and not until() and time.monotonic() < end:
            time.sleep(0.02)
        if idle < math.inf:
            _wait_while_busy(process.pid, idle)
        out, err = process.communicate(stdin, max(1, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"no end after {timeout} s: {words}\n{out[-2000:]}\n{err[-4000:]}") from None
    return Done(process.returncode, out, err)


def _wait_while_busy(pid: int, idle: float) -> None:
    """Waits until a process has ended. Raises ``TimeoutExpired`` if it uses no CPU time for ``idle`` seconds.

    Only for programs that write less than a pipe holds.
    """
    used, since = -1, time.monotonic()
    while (now := _cpu(pid)) is not None:
        if now != used:
            used, since = now, time.monotonic()
        elif time.monotonic() - since > idle:
            raise subprocess.TimeoutExpired([], idle)
        time.sleep(0.02)


def process_fields(pid: int) -> list[str]:
    """The fields of ``/proc/PID/stat`` after the program's name: the state of its main thread, and so on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _cpu(pid: int) -> int | None:
    """Returns the CPU time of a process in ticks of its system's clock; None if it has ended."""
    state, *fields = process_fields(pid)
    return None if state == "Z" else int(fields[10]) + int(fields[11])


def is_near(estimate: Any, truth: float) -> bool:
    """Whether the truth is within three times the 95 % interval of an estimate: six standard deviations."""
    low, middle, high = (estimate[name] for name in ("low", "estimate", "high"))
    return bool(middle - 3 * (middle - low) <= truth <= middle + 3 * (high - middle))


def report(*arguments: str | Path, folder: Path) -> Done:
    """Runs a command of nthbyte that reads profiles."""
    return run([str(COMMAND), *map(str, arguments)], folder)


def summary(profile: Path, *options: str) -> Any:
    """Returns ``nthbyte summary --json`` of one process: of its objects, unless the options name a domain."""
    if "--all" not in options:
        options = ("--alone", *options)
    if not any(option.startswith("--domain") for option in options):
        options = ("--domain", "python", *options)
    return json.loads(report("summary", profile, "--json", *options, folder=profile.parent).ok().out)


def rows_so_far(profile: Path, *options: str) -> dict[str, Any]:
    """Returns the rows of a profile that is being written, by their names; none before there is one."""
    done = report("summary", profile, "--alone", "--json", *options, folder=profile.parent)
    return {row["name"]: row for row in json.loads(done.out)["rows"]} if done.status == 0 else {}


def firefox(profile: Path) -> Any:
    """Returns a profile as the Firefox Profiler reads it."""
    path = profile.with_suffix(".json.gz")
    report("export", "--to", "firefox", "-f", "-o", path, profile, folder=profile.parent).ok()
    return json.loads(gzip.decompress(path.read_bytes()))


def samples(profile: Path) -> int:
    """Returns the number of samples in a profile."""
    count: int = summary(profile)["samples"]
    return count


@functools.cache
def interpreters() -> list[Interpreter]:
    """Returns all installed interpreters that nthbyte supports."""
    found = [*_of_pyenv(), *_of_the_system(), *_of_the_trees()]
    return [one for one in found if one.about and _is_supported(one)]


def cpythons() -> list[Interpreter]:
    """Returns the CPythons among them."""
    return [one for one in interpreters() if not one.is_pypy]


def pypys() -> list[Interpreter]:
    """Returns the PyPys among them."""
    return [one for one in interpreters() if one.is_pypy]


@functools.cache
def free_threaded() -> list[Interpreter]:
    """Returns the free-threaded CPythons that ``TREES=freethreaded make interpreters`` has built."""
    found = [Interpreter(str(path)) for path in sorted(_TREES.glob("freethreaded/bin/python3.*t"))]
    return [one for one in found if one.about and one.is_free_threaded]


def _is_supported(one: Interpreter) -> bool:
    return one.is_pypy or (not one.is_free_threaded and (3, 11) <= one.python_version <= (3, 15))


def _of_pyenv() -> list[Interpreter]:
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    return [
        Interpreter(str(path))
        for path in sorted(root.glob("versions/3.1?.*/bin/python"))
        if int(path.parts[-3].split(".")[1]) >= 11
    ]


def _of_the_system() -> list[Interpreter]:
    found = [path for path in map(Path, sorted(os.listdir("/usr/bin"))) if _is_python(path.name)]
    names = [f"/usr/bin/{path}" for path in found]
    pypy = shutil.which("pypy3")
    if pypy:
        names.append(pypy)
    return [Interpreter(name) for name in names]


def _of_the_trees() -> list[Interpreter]:
    if not _TREES.is_dir() or os.geteuid() != 0:
        return []
    found = []
    for tree in sorted(_TREES.iterdir()):
        binaries = tree / "usr" / "bin"
        if not binaries.is_dir():
            continue
        names = [name for name in sorted(os.listdir(binaries)) if _is_python(name) or name == "pypy3"]
        found += [Interpreter(f"/usr/bin/{name}", str(tree)) for name in names]
    return found


def _is_python(name: str) -> bool:
    match = re.fullmatch(r"python3\.(\d+)", name)
    return match is not None and int(match[1]) >= 11
