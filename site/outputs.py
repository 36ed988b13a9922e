"""Runs the commands of the guide, and writes what they print into its pages: `make docs-outputs`.

``outputs.py --check`` runs them too, and compares: what the pages expect of an output must be in the new one and in the
page. Numbers, the speed of the machine, and where a run happens to have its samples, do not matter. It writes nothing.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transcript import Change, Mistake, Output, Picture, steps

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
# Its name is in the outputs, so it is always the same there.
FOLDER = Path("/tmp/guide")
COLUMNS = "100"
# One run in some hundred has too few samples of what its page speaks of, but not four runs of a page.
ATTEMPTS = 4


def pages() -> list[Path]:
    """Returns the pages that run something."""
    return [page for page in sorted(DOCS.rglob("*.md")) if steps(page.read_text())]


@contextmanager
def _folder(page: Path, is_check: bool) -> Iterator[Path]:
    """Makes a folder that has copies of the files beside the page."""
    folder = Path(tempfile.mkdtemp()) if is_check else FOLDER
    folder.mkdir(exist_ok=is_check)
    try:
        for path in page.parent.glob("*.py"):
            shutil.copy(path, folder)
        yield folder
    finally:
        shutil.rmtree(folder)


def _run(command: str, folder: Path) -> str:
    """Runs a command as in a terminal, and returns all that it prints."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        "PATH": path,
        "COLUMNS": COLUMNS,
        "LANG": "C.UTF-8",
        "HOME": str(folder),
        "PYTHONHASHSEED": "0",
    }
    # A command that finds something, such as `leaks --fail`, may say so by its status; `expect:` has the text.
    done = subprocess.run(
        shlex.split(command),
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode > 1 or done.returncode < 0 or "Traceback (most recent call last)" in done.stdout:
        raise Mistake(f"`{command}` ends with status {done.returncode}:\n{done.stdout}")
    return done.stdout


def _photograph(picture: Picture, folder: Path, target: Path) -> None:
    """Writes a picture of a page, by a browser without a window."""
    subprocess.run(
        [
            os.environ.get("CHROMIUM", "/usr/bin/chromium"),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            "--hide-scrollbars",
            "--virtual-time-budget=10000",
            f"--window-size={picture.width},{picture.height}",
            f"--user-data-dir={folder / 'browser'}",
            f"--screenshot={target}",
            (folder / picture.page).as_uri(),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=600,
    )


def perform(page: Path, is_check: bool) -> list[str]:
    """Runs a page, writes its outputs unless it is only to be checked, and returns the faults."""
    text = page.read_text()
    wrong: list[str] = []
    written: list[tuple[Output, str]] = []
    with _folder(page, is_check) as folder:
        for step in steps(text):
            if isinstance(step, Change):
                program = folder / step.file
                program.write_text(step.apply(program.read_text()))
                continue
            output = _run(step.command, folder)
            if isinstance(step, Output):
                wrong += step.check(output, f"in what it prints now:\n{output}")
                if is_check:
                    wrong += step.check(
                        text[step.start : step.end], "in the page; `make docs-outputs` writes it"
                    )
                written.append((step, step.block(output)))
            elif not (folder / step.page).exists():
                wrong.append(f"`{step.command}` writes no {step.page}")
            elif not is_check:
                _photograph(step, folder, page.parent / step.name)
    if not is_check:
        for place, block in reversed(written):
            text = text[: place.start] + block + text[place.end :]
        page.write_text(text)
    return wrong


def main() -> int:
    """Reads the command line and returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pages", nargs="*", type=Path, help="the pages (default: all that run something)")
    parser.add_argument("--check", action="store_true", help="write nothing, and compare")
    arguments = parser.parse_args()
    wrong = []
    chosen = [page.resolve() for page in arguments.pages] or pages()
    for page in chosen:
        name = page.relative_to(ROOT)
        print(name, flush=True)
        for _ in range(ATTEMPTS if arguments.check else 1):
            try:
                found = perform(page, arguments.check)
            except Mistake as mistake:
                found = [str(mistake)]
            if not found:
                break
        wrong += [f"{name}: {one}" for one in found]
    print("\n".join(wrong) or f"{len(chosen)} pages are as stated", file=sys.stderr if wrong else sys.stdout)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
