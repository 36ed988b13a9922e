"""``nthbyte check``: says what nthbyte can record here, and in a running process, and what prevents the rest.

Each row has the answer of the code that does the work: the interpreter's come from short recordings
(``_trial.py``), the limits' from the kernel's own files (``_limits.py``). A further row is one more line in
``_rows``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from nthbyte._agent import COMMAND
from nthbyte._arguments import Parser
from nthbyte._command_line import fail
from nthbyte._family import is_interpreter
from nthbyte._limits import cgroup_limits, free_descriptors
from nthbyte._options import OPTIONS
from nthbyte._row import NO, UNKNOWN, YES, Row
from nthbyte._trial import Trial
from nthbyte._version import __version__

# The folder that has the package.
_SITE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Prints the rows of another interpreter: this package is looked for last, behind everything of its own.
_ELSEWHERE = """
import sys
sys.path.append({site!r})
from nthbyte.check import print_trial
print_trial()
"""

# The longest time that another interpreter may take, in seconds.
_LONGEST = 60

# Without these nothing is recorded.
_NEEDED = ("interpreter", "heap", "profile's folder", "free descriptors")


def main(words: list[str]) -> int:
    """Runs ``nthbyte check`` and returns its exit status: 1 if nothing can be recorded. Exits on an error.

    ``words`` are the arguments after ``nthbyte check``.
    """
    parser = Parser(
        prog="nthbyte check",
        usage="nthbyte check [PID] [--json]",
        description="Say what nthbyte can record with this interpreter, or in a running process, and what prevents the "
        "rest: a line for each, with the way out. It makes short recordings in the current folder, and removes them.",
        epilog="It tries the interpreter that runs nthbyte. For PyPy: pypy3 -m nthbyte check",
        allow_abbrev=False,
    )
    parser.add_argument("pid", nargs="?", type=int, metavar="PID", help="the process to look at")
    parser.add_argument("--json", action="store_true", help="write JSON (docs/guide/check.md describes it)")
    options = parser.parse_args(words)
    if options.pid is not None and (options.pid <= 0 or not os.path.isdir(f"/proc/{options.pid}")):
        fail(f"there is no process {options.pid}", 1)
    rows = _rows(options.pid)
    text = _as_json(options.pid, rows) if options.json else _as_text(rows)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Nobody reads it any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return int(any(row.state == NO for row in rows if row.what in _NEEDED))


def _rows(pid: int | None) -> list[Row]:
    """Returns all rows: of this process, or of the one with this number."""
    if pid is None:
        trial = Trial()
        rows, needed = trial.rows(), trial.descriptors
    else:
        rows, needed = _rows_of_process(pid)
    process = "self" if pid is None else str(pid)
    return [
        *rows,
        _holders(),
        *_attach(pid),
        cgroup_limits(process),
        free_descriptors(process, needed),
    ]


def _holders() -> Row:
    what = "holders"
    if "t" in getattr(sys, "abiflags", ""):
        return Row(what, NO, "who refers to an object is not recorded in a build without the GIL")
    option = next((option for option in OPTIONS if option.name == what), None)
    if option is not None and option.is_here():
        return Row(what, YES, f"who refers to an object is recorded, with {option.flag}")
    where = f": it works on {option.where()} only" if option is not None else ""
    return Row(what, NO, f"who refers to an object is not recorded here{where}")


def _attach(pid: int | None) -> list[Row]:
    """Returns a row for each way to attach to a process."""
    if pid is None:
        return [Row("attach", UNKNOWN, "it depends on the process", "ask with its number: nthbyte check PID")]
    words = [COMMAND, "attach", str(pid), "--look"]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LONGEST
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [Row("attach", UNKNOWN, f"{COMMAND} cannot be asked ({error})")]
    text = (done.stdout or done.stderr).strip().removeprefix("nthbyte: ")
    return [Row("attach", YES, text) if done.returncode == 0 else Row("attach", NO, text)]


def _rows_of_process(pid: int) -> tuple[list[Row], int | None]:
    """Returns the rows of a running process: a trial's with the same interpreter, if that is possible. And the
    descriptors that a recording needs, if they are known.
    """
    what = "interpreter"
    try:
        path = os.readlink(f"/proc/{pid}/exe")
        with open(f"/proc/{pid}/maps") as file:
            maps = file.read()
        is_elsewhere = not os.path.samefile(f"/proc/{pid}/root", "/")
    except OSError as error:
        reason = f"/proc/{pid} cannot be read ({error.strerror})"
        return [Row(what, UNKNOWN, reason, "ask as its user, or as root")], None
    recorded = _recorded(pid, maps)
    if is_elsewhere:
        text = f"{path} runs in another root folder, as in a container"
        return [*recorded, Row(what, UNKNOWN, text, "run nthbyte check in there")], None
    path = path.removesuffix(" (deleted)")
    if not is_interpreter(os.path.basename(path)):
        if "libpython" in maps:
            text = f"{path} embeds Python, which cannot be tried from outside"
            return [*recorded, Row(what, UNKNOWN, text, "call nthbyte.start() in its Python code")], None
        way_out = f"nthbyte run -- {path} records native code, from its start"
        return [*recorded, Row(what, NO, f"{path} is not a Python", way_out)], None
    try:
        done = subprocess.run(
            # Its own path: the file may have been replaced since.
            [path, "-I", "-c", _ELSEWHERE.format(site=_SITE)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LONGEST,
        )
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        text = f"a trial with {path} failed"
        return [*recorded, Row(what, UNKNOWN, text, f"run {path} -m nthbyte check")], None
    return [*recorded, *(Row(**row) for row in found["rows"])], found["descriptors"]


def print_trial() -> None:
    """Prints the rows of this interpreter as JSON, for the nthbyte of another one."""
    trial = Trial()
    rows = [_members(row) for row in trial.rows()]
    print(json.dumps({"rows": rows, "descriptors": trial.descriptors}))


def _recorded(pid: int, maps: str) -> list[Row]:
    """Returns a row that says whether nthbyte is in the process already, and where its profile is."""
    what = "recorded"
    if "/libnthbyte_" not in maps:
        return [Row(what, NO, "nthbyte is not in this process")]
    try:
        links = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        links = []
    profiles = sorted({link for link in links if link.endswith(".nthb")})
    if not profiles:
        return [Row(what, NO, "nthbyte is in this process, and records nothing now")]
    return [Row(what, YES, f"into {', '.join(profiles)}")]


def _members(row: Row) -> dict[str, Any]:
    return {"what": row.what, "state": row.state, "text": row.text, "way_out": row.way_out}


def _as_json(pid: int | None, rows: list[Row]) -> str:
    document = {"nthbyte": __version__, "pid": pid, "rows": [_members(row) for row in rows]}
    return json.dumps(document, indent=2) + "\n"


def _as_text(rows: list[Row]) -> str:
    width = max(len(row.what) for row in rows)
    lines = []
    for row in rows:
        way_out = f"; {row.way_out}" if row.way_out else ""
        lines.append(f"{row.what:{width}}  {row.state:7}  {row.text}{way_out}\n")
    return "".join(lines)
