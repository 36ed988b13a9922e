"""How large pages of ``nthbyte flamegraph`` do in a browser: ``bench/page/measure.mjs``, in headless Chromium."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable

from evaluation.experiment import Bench, Experiment, Missing, Raw
from evaluation.interpreters import BENCH, ROOT
from evaluation.words import table

_CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
_DRIVER = ROOT / "tests" / "page" / "node_modules" / "playwright-core"


def run(bench: Bench) -> Raw:
    """Measures each page several times."""
    for command in ("node", "cargo", _CHROMIUM):
        if not shutil.which(command):
            raise Missing(f"{command} is not installed")
    if not _DRIVER.exists():
        raise Missing("playwright-core is not installed; `npm --prefix tests/page ci` gets it")
    pages = ["small", "--dev", "--moves", "4"] if bench.quick else ["stacks", "samples"]
    words = ["node", str(BENCH / "page" / "measure.mjs"), "--json", "--repeat", str(bench.rounds(5)), *pages]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    raw: Raw = json.loads(done.stdout)
    return raw


def lines(raw: Raw) -> list[str]:
    """The tables."""
    pages = raw["pages"]
    return [
        f"Made-up profiles, `node bench/page/measure.mjs`, {raw['browser']}. Times are the least, the median and the greatest, of {raw['repeat']} times that the page was",
        "opened, and of 40 moves each time. *CPU* is that of the page's main thread; of a move, it has all that the thread did, also for the measurement: two",
        "frames, the pointer's events, and the timeline. Times of the clock contain time in which other programs ran.",
        "",
        *table(
            ["profile", "page", "records, nodes", "opens", "CPU to open", "memory"],
            [
                [
                    page["what"],
                    f"{page['bytes'] / 1e6:.2f} MB",
                    f"{page['work']['records']:,}, {page['work']['nodes']:,}",
                    f"{_three((each / 1000 for each in page['opens']), 2)} s",
                    f"{_three((each / 1000 for each in page['cpu']), 2)} s",
                    f"{page['heap'] / 1e6:.0f} MB",
                ]
                for page in pages
            ],
        ),
        "",
        *table(
            [
                "profile",
                "coloured by",
                "update after a move",
                "CPU of a move",
                "the table, when the range rests",
            ],
            [
                [page["what"], colour, *(f"{_three(of[what], 1)} ms" for what in ("update", "cpu", "table"))]
                for page in pages
                for colour, of in page["moves"].items()
            ],
        ),
    ]


def _three(numbers: Iterable[float], digits: int) -> str:
    return ", ".join(f"{each:.{digits}f}" for each in numbers)


EXPERIMENT = Experiment("large-pages", "Large pages in a browser", run, lines)
