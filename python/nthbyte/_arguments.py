"""The options of ``nthbyte run`` by argparse: for help, and for what is wrong with them."""

from __future__ import annotations

import argparse
from typing import NoReturn

from nthbyte._run import HUGE_PAGES, Options, fail
from nthbyte._size import parse_period


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        fail(f"{message}; see nthbyte run --help", 2)


def parse(words: list[str], options: Options) -> Options:
    """Reads options into ``options``, whose values are the defaults. Exits on an error, and after help."""
    parser = _Parser(
        prog="nthbyte run",
        usage="nthbyte run [OPTIONS] (SCRIPT | -m MODULE | -c CODE) [ARGS...]",
        description="Runs a Python program and records which allocations it makes.",
        epilog="The interpreter that is profiled is the one that runs nthbyte: pypy3 -m nthbyte run app.py",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("-o", "--output", metavar="OUT", help="the profile (default: nthbyte-NAME.PID.nthb in this folder)")
    add(
        "--every",
        metavar="SIZE",
        type=_period,
        default=options.every,
        help="mean distance between samples: 64B to 1TiB, or 1 for every allocation (default: 512KiB)",
    )
    add("--fixed", action="store_true", help="sample exactly every n-th byte (PyPy only)")
    add("--seed", metavar="N", type=int, help="make the choice of samples repeatable")
    add("--cpu", metavar="HZ", type=int, help="also take time samples, so many a second (PyPy only)")
    add("--native", action="store_true", help="also record native memory and frames")
    add(
        "--huge-pages",
        choices=HUGE_PAGES,
        default=options.huge_pages,
        help="pages of the object heap: transparent huge pages, the hugetlb pool, or ordinary (default: thp)",
    )
    add("-q", "--quiet", action="store_true", help="say nothing at the end")
    return parser.parse_args(words, options)


def _period(text: str) -> int:
    try:
        return parse_period(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
