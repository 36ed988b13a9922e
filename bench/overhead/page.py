"""Writes docs/performance.md, and finds the programs to measure."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAMS = ROOT / "bench" / "programs"
PAGE = ROOT / "docs" / "performance.md"


def scripts(only: list[str] | None) -> list[Path]:
    """The programs with these names, or all programs."""
    found = [path for path in sorted(PROGRAMS.glob("*.py")) if path.stem != "corpus"]
    return [path for path in found if path.stem in only] if only else found


def version(python: str) -> str:
    """The name and version of an interpreter."""
    code = "import platform; print(platform.python_implementation(), platform.python_version())"
    return subprocess.run([python, "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def profiled(python: str, period: str, profile: Path, program: list[str]) -> list[str]:
    """The command that runs a program under the nthbyte installed beside an interpreter, always with the same seed."""
    nthbyte = str(Path(python).parent / "nthbyte")
    return [
        python,
        nthbyte,
        "run",
        "-q",
        "-f",
        "--seed",
        "1",
        "--every",
        period,
        "-o",
        str(profile),
        *program,
    ]


def put(name: str, lines: list[str], path: Path = PAGE) -> None:
    """Writes a measurement between its marks, replacing the former one, or at the end of the page."""
    begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
    page = path.read_text()
    if begin in page:
        before, rest = page.split(begin, 1)
        after = rest.split(end, 1)[1]
    else:
        before, after = page.rstrip() + "\n\n", "\n"
    text = "\n".join(lines)
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}")
