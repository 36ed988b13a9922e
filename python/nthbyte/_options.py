"""The table of the options of ``nthbyte run`` and of :func:`nthbyte.start`.

The command line (``_command_line.py``), its help (``_arguments.py``) and the check of values (:func:`check`) use
this table. The signatures of ``start`` and ``Profiler``, docs/run.md and README.md repeat it for their readers;
tests/python/test_options.py compares them with it.
"""

from __future__ import annotations

import sys

from nthbyte._size import DEFAULT_PERIOD, parse_period

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

# The description of `nthbyte run` in every help text.
DESCRIPTION = "Run a Python program and record which allocations it makes"

HUGE_PAGES = ("thp", "hugetlb", "off")

# The interpreters' names, by sys.implementation.name.
_NAMES = {"cpython": "CPython", "pypy": "PyPy"}
_EVERYWHERE = ("cpython", "pypy")


class Option:
    """One option."""

    def __init__(
        self,
        name: str,
        help: str,
        *,
        default: Any = None,
        short: str | None = None,
        placeholder: str | None = None,
        read: Callable[[str], Any] = str,
        check: Callable[[Any], Any] | None = None,
        interpreters: tuple[str, ...] = _EVERYWHERE,
        is_argument: bool = True,
    ):
        self.name = name
        """The name as an argument of ``start`` and as a key of the command line's options."""
        self.help = help
        self.default = default
        self.short = short
        """The short form, such as ``-o``; None if there is none."""
        self.placeholder = placeholder
        """The placeholder for the value in the help; None if the option has no value."""
        self.read = read
        """Converts a word into the value. Raises ValueError if it cannot."""
        self.check = check
        """Returns the value in the agent's form. Raises ValueError, with one line for the user, if it is wrong."""
        self.interpreters = interpreters
        """The interpreters that have the option, as ``sys.implementation.name``; empty if none has it yet."""
        self.is_argument = is_argument
        """Whether ``start`` has the option as a keyword."""

    @property
    def flag(self) -> str:
        """The long form: ``--huge-pages``; ``--no-native`` for an option that is on by default."""
        return ("--no-" if self.default is True else "--") + self.name.replace("_", "-")

    @property
    def flags(self) -> tuple[str, ...]:
        """The short form, if any, and the long form."""
        return (self.short, self.flag) if self.short else (self.flag,)

    def is_here(self) -> bool:
        """Whether this interpreter has the option."""
        return sys.implementation.name in self.interpreters

    def where(self) -> str:
        """The names of the interpreters that have the option, for messages."""
        return " and ".join(_NAMES[name] for name in self.interpreters)


def _number(what: str, low: int, high: int, bounds: str) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(f"{what} is a whole number {bounds}, not {value!r}")
        return value

    return check


def _huge_pages(value: Any) -> Any:
    if value not in HUGE_PAGES:
        raise ValueError(f"--huge-pages is thp, hugetlb or off, not {value!r}")
    return value


OPTIONS = (
    Option(
        "output",
        "where to write the profile (default: nthbyte-NAME.PID.nthb in the current folder)",
        short="-o",
        placeholder="OUT",
        is_argument=False,
    ),
    Option(
        "every",
        "mean distance between samples, from 64B to 1TiB; 1 records every allocation (default: 512KiB)",
        default=DEFAULT_PERIOD,
        placeholder="SIZE",
        read=parse_period,
        check=parse_period,
    ),
    Option(
        "fixed",
        "sample at exactly every SIZE bytes instead of at random distances",
        default=False,
        interpreters=("pypy",),
    ),
    Option(
        "seed",
        "use the same random distances in each run",
        placeholder="N",
        read=int,
        check=_number("--seed", 0, (1 << 64) - 1, "from 0 to 2**64-1"),
    ),
    Option(
        "cpu",
        "also take time samples, HZ per second",
        placeholder="HZ",
        read=int,
        check=_number("--cpu", 1, 10_000, "from 1 to 10000"),
        interpreters=("pypy",),
    ),
    Option(
        "native",
        "do not record native memory: calls of malloc, and mappings of anonymous memory",
        default=True,
        interpreters=("cpython",),
    ),
    Option(
        "huge_pages",
        "memory pages of the object heap: transparent huge pages (thp), pages of the system's pool of huge "
        "pages (hugetlb), or ordinary pages (off) (default: thp)",
        default="thp",
        placeholder="KIND",
        check=_huge_pages,
        interpreters=("cpython",),
    ),
    Option("quiet", "print nothing at the end", default=False, short="-q", is_argument=False),
)


def check(values: dict[str, Any]) -> dict[str, Any]:
    """Returns options in the agent's form. Raises ValueError, with one line for the user, if one is wrong."""
    checked = {}
    for option in OPTIONS:
        if not option.is_argument:
            continue
        value = values[option.name]
        if value != option.default:
            if not option.interpreters:
                raise ValueError(f"{option.flag} is not available yet, on any interpreter")
            if not option.is_here():
                here = _NAMES.get(sys.implementation.name, sys.implementation.name)
                raise ValueError(
                    f"{option.flag} is not available on {here}: it works on {option.where()} only"
                )
        if option.check is not None and value is not option.default:
            value = option.check(value)
        checked[option.name] = value
    if checked["fixed"] and checked["every"] == 1:
        raise ValueError("--fixed and --every 1 exclude each other: every allocation is recorded already")
    return checked
