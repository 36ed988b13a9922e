"""What snapshots say that holders hold, against what is freed when these let go.

``truth/holders.py`` has a holder of each kind. Their contents have random sizes, others for each seed. With ``--every 1`` it lets go
of one after the other, and the profile has each block that is freed then: that is exact, and independent of what a walk over the
objects says. Then it runs many times at the default and at two fixed periods, with a snapshot at its end. A case is one holder in
one run: whether the exact value lies within the 95 % interval that ``nthbyte holders --json`` has of its branch. A branch that
is not there counts as one that does not hold.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from evaluation.experiment import Bench, Experiment, Raw
from evaluation.experiments.exactness import HARD, Cases
from evaluation.interpreters import ROOT, SCRIPT, own
from evaluation.words import bytes_text, table

PROGRAM = HARD / "holders.py"
READER = ROOT / "crates" / "profile" / "tests" / "read_format.py"
SEEDS = 4
# Of each seed.
RUNS = {"auto": 15, "64KiB": 10, "512KiB": 10}


def _record(bench: Bench, *words: str) -> tuple[Path, str]:
    """Runs the program, and returns its profile and what it prints."""
    path = bench.folder / "out.nthb"
    command = [own().path, str(SCRIPT), "run", "-q", "-f", "-o", str(path), *words]
    done = subprocess.run(command, check=True, env=own().environment(), stdout=subprocess.PIPE, text=True)
    return path, done.stdout


def freed(bench: Bench, seed: int) -> dict[str, int]:
    """The bytes of blocks that each holder frees when it lets go."""
    profile, printed = _record(bench, "--no-holders", "--every", "1", str(PROGRAM), str(seed), "let-go")
    spans = [(name, int(began), int(ended)) for name, began, ended in map(str.split, printed.splitlines())]
    born: dict[str, tuple[int, int]] = {}
    sums = dict.fromkeys((name for name, _, _ in spans), 0)
    with subprocess.Popen([own().path, READER, profile], stdout=subprocess.PIPE, text=True) as read:
        assert read.stdout
        for line in read.stdout:
            what, *rest = line.split(" ")
            if what == "allocation":
                born[rest[0]] = int(rest[1]), int(rest[8])
            elif what == "freed":
                time, block = born.pop(rest[0])
                for name, began, ended in spans:
                    if time < began <= int(rest[1]) <= ended:
                        sums[name] += block
    return sums


def branches(tree: list[Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The branches of a tree, with the paths that lead to them."""
    for branch in tree:
        reference = branch["reference"].removeprefix("class ")
        # The dictionary of a class has no name.
        path = above if above and reference == branch["what"] else f"{above}.{reference}".removeprefix(".")
        yield path, branch
        yield from branches(branch["children"], "" if path == "__main__" else path)


def compare(
    shown: Any, truth: dict[str, int], found: dict[str, Cases], errors: dict[str, list[float]]
) -> None:
    """Counts the cases of one run."""
    by_path: dict[str, Any] = {}
    for path, branch in branches(shown["tree"]):
        by_path.setdefault(path, branch)
    for holder, exact in truth.items():
        branch = by_path.get(holder)
        if branch is None:
            found[holder].add(exact, 0.0, 0.0, 0.0)
            continue
        low, estimate, high = (branch["bytes"][part] for part in ("low", "estimate", "high"))
        found[holder].add(exact, low, estimate, high)
        errors[holder].append((high - low) / 2 / estimate)


def run(bench: Bench) -> Raw:
    """Measures each period."""
    seeds = range(1, 1 + bench.rounds(SEEDS))
    runs = {every: bench.rounds(number) for every, number in RUNS.items()}
    truth = {seed: freed(bench, seed) for seed in bench.track(seeds, "exact")}
    raw: Raw = {"interpreter": own().name, "seeds": len(seeds), "runs": runs, "periods": {}}
    raw["freed"] = {holder: fmean(truth[seed][holder] for seed in seeds) for holder in truth[1]}
    for every, number in runs.items():
        found = {holder: Cases() for holder in truth[1]}
        errors: dict[str, list[float]] = {holder: [] for holder in truth[1]}
        for seed, _ in bench.track([(seed, turn) for seed in seeds for turn in range(number)], every):
            profile, _ = _record(bench, "--holders", "--every", every, str(PROGRAM), str(seed))
            words = [str(SCRIPT), "holders", "--json", str(profile)]
            shown = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
            compare(shown, truth[seed], found, errors)
        raw["periods"][every] = {
            holder: [round(fmean(errors[holder] or [0.0]), 4), *cases.raw()]
            for holder, cases in found.items()
        }
        bench.keep(raw)
    return raw


def _cells(error: float, cases: float, below: float, above: float, estimates: float) -> list[str]:
    return [f"{100 * (1 - (below + above) / cases):.1f}", f"±{error:.1%}", f"{estimates / cases - 1:+.1%}"]


def lines(raw: Raw) -> list[str]:
    """The table."""
    periods = raw["periods"]
    rows = [
        [
            f"`{holder}`",
            bytes_text(exact),
            *(cell for every in periods for cell in _cells(*periods[every][holder])),
        ]
        for holder, exact in raw["freed"].items()
    ]
    sums = {}
    for every, of in periods.items():
        errors, *numbers = zip(*of.values(), strict=True)
        sums[every] = [fmean(errors), *map(sum, numbers)]
    rows.append(
        [
            "all",
            bytes_text(sum(raw["freed"].values())),
            *(cell for every in periods for cell in _cells(*sums[every])),
        ]
    )
    columns = [f"{every}, {what}" for every in periods for what in ("hold", "interval", "bias")]
    return [
        f"{raw['interpreter']}; {raw['seeds']} seeds; runs of each: "
        + ", ".join(f"{number} at {every}" for every, number in raw["runs"].items())
        + ". *hold*: in how many of 100 runs the exact value lies within the 95 % interval. *bias*: the mean of the estimates over the",
        "exact value, less 1.",
        "",
        *table(["holder", "freed when it lets go", *columns], rows),
    ]


EXPERIMENT = Experiment("holders", "Who holds what, against what is freed", run, lines)
