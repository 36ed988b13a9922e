"""A program whose functions use known shares of the CPU time: each counts down on its thread's CPU clock."""

from __future__ import annotations

import sys
import time

SHARES = {"parse": 50, "render": 25, "encode": 15, "log": 10}


def spend(seconds: float) -> None:
    """Uses up CPU time of this thread."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        for _ in range(200):
            pass


def parse(unit: float) -> None:
    spend(SHARES["parse"] * unit)


def render(unit: float) -> None:
    spend(SHARES["render"] * unit)


def encode(unit: float) -> None:
    spend(SHARES["encode"] * unit)


def log(unit: float) -> None:
    spend(SHARES["log"] * unit)


def main(seconds: float) -> None:
    """Runs for this much CPU time, in rounds of a tenth of a second."""
    for _ in range(round(seconds * 10)):
        for function in (parse, render, encode, log):
            function(0.001)


if __name__ == "__main__":
    main(float(sys.argv[1]))
