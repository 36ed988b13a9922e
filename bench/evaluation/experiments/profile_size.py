"""How large profiles are, and how long it takes to convert them: the paper's section 5.1, beside memray and VMProf."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation import plot
from evaluation.experiment import Bench, Experiment, Raw
from evaluation.interpreters import BENCH, PROGRAMS, SCRIPT, SHORT, own, profiled
from evaluation.pairs import Command, Failed, run_together
from evaluation.profile import summary
from evaluation.words import bytes_text, table

CHOSEN = ("json_records", "pycparser_source", "docutils_html", "lark_python")

_COUNT_MEMRAY = "import sys, memray; print(memray.FileReader(sys.argv[1]).metadata.total_allocations)"
_READ_VMPROF = "import sys, vmprof; print(len(vmprof.read_profile(sys.argv[1]).profiles))"
_VMPROF = BENCH / "evaluation" / "under" / "with_vmprof.py"


@dataclass(frozen=True)
class Tool:
    """A profiler: how a script is run under it, how many records a file has, and what its usual conversion is."""

    name: str
    command: Callable[[Path, str], list[str]]
    count: Callable[[Path], int]
    convert: Callable[[Path], list[str]]
    package: str | None = None


def _nthbyte(every: str) -> Tool:
    return Tool(
        f"nthbyte {every}",
        lambda out, script: profiled(own(), out, [script], every),
        _samples,
        lambda out: [str(SCRIPT), "export", "--to", "firefox", "-f", "-o", f"{out}.json.gz", str(out)],
    )


def _samples(out: Path) -> int:
    return int(summary(out, "--top", "1")["samples"])


def _printed(code: str) -> Callable[[Path], int]:
    def count(out: Path) -> int:
        words = [sys.executable, "-c", code, str(out)]
        return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)

    return count


def memray_run(out: Path, script: str, *options: str) -> list[str]:
    """The command that runs a script under memray."""
    return [sys.executable, "-m", "memray", "run", "-q", "-f", *options, "-o", str(out), script]


def _memray_page(out: Path) -> list[str]:
    return [sys.executable, "-m", "memray", "flamegraph", "-f", "-o", f"{out}.html", str(out)]


TOOLS = (
    _nthbyte("512KiB"),
    _nthbyte("32KiB"),
    Tool("memray", memray_run, _printed(_COUNT_MEMRAY), _memray_page, "memray"),
    Tool(
        "memray, Python allocators",
        lambda out, script: memray_run(out, script, "--trace-python-allocators"),
        _printed(_COUNT_MEMRAY),
        _memray_page,
        "memray",
    ),
    Tool(
        "VMProf 1000 Hz",
        lambda out, script: [sys.executable, str(_VMPROF), "1000", str(out), script],
        _printed(_READ_VMPROF),
        lambda out: [sys.executable, "-c", _READ_VMPROF, str(out)],
        "vmprof",
    ),
)


def run(bench: Bench) -> Raw:
    """Profiles each program once with each tool. The counts do not depend on the load."""
    rows: list[dict[str, Any]] = []
    tools = []
    for tool in TOOLS:
        if tool.package and not importlib.util.find_spec(tool.package):
            bench.note(f"{tool.package} is not installed here.")
        else:
            tools.append(tool)
    programs = [SHORT] if bench.quick else [PROGRAMS / f"{name}.py" for name in CHOSEN]
    for program, tool in bench.track([(program, tool) for program in programs for tool in tools], "profiles"):
        out = bench.folder / "profile.bin"
        out.unlink(missing_ok=True)
        command = Command(tool.command(out, str(program)), bench.folder)
        try:
            used = run_together([command])[0]
            conversion = run_together([Command(tool.convert(out), bench.folder)])[0]
            records = tool.count(out)
        except (Failed, subprocess.CalledProcessError):
            bench.note(f"{tool.name} fails on {program.stem}: the run, or the reading of its file.")
            continue
        rows.append(
            {
                "program": program.stem,
                "tool": tool.name,
                "bytes": os.path.getsize(out),
                "records": records,
                "cpu": used["cpu"],
                "convert": conversion["cpu"],
            }
        )
        bench.keep({"rows": rows})
    return {"rows": rows}


def lines(raw: Raw) -> list[str]:
    """The table."""
    rows = [
        [
            row["program"],
            row["tool"],
            f"{row['records']:,}",
            bytes_text(row["bytes"]),
            f"{row['bytes'] / max(1, row['records']):.1f}",
            f"{bytes_text(row['bytes'] / row['cpu'])}/s",
            f"{row['convert']:.2f} s",
        ]
        for row in raw["rows"]
    ]
    head = ["program", "tool", "records", "file", "bytes a record", "bytes a second", "conversion"]
    return [
        "A record is a sample of nthbyte's or VMProf's, an allocation or a release of memray's. *Bytes a second*: of the file, for each second of CPU time of",
        "that run. *Conversion* is the CPU time of `nthbyte export --to firefox`, of `memray flamegraph`, and of VMProf's own reader.",
        "The paper's files have about 4 GB for 8 minutes at 32 KiB.",
        "",
        *table(head, rows),
    ]


def plots(raw: Raw) -> dict[str, str]:
    """The sizes."""
    groups: dict[str, dict[str, float]] = {}
    for row in raw["rows"]:
        groups.setdefault(row["program"], {})[row["tool"]] = row["bytes"] / (1 << 20)
    return {"profile-size": plot.bars("Size of the profile", groups, " MiB")}


EXPERIMENT = Experiment("profile-size", "Profile size", run, lines, plots)
