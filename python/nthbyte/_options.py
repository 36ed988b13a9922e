"""The table of the options of ``nthbyte run`` and of :func:`nthbyte.start`.

The command line (``_command_line.py``), its help (``_arguments.py``) and the check of values (:func:`check`) use
this table. The signatures of ``start`` and ``Profiler``, docs/run.md and README.md repeat it for their readers;
tests/python/test_options.py compares them with it.
"""

from __future__ import annotations

import sys

from nthbyte._size import AUTO, CONSTANT_PERIOD, parse_period, parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

# The description of `nthbyte run` in every help text.
DESCRIPTION = "Run a program and record which allocations it makes"

HUGE_PAGES = ("thp", "hugetlb", "off")
DEFAULT_HUGE_PAGES = "thp"

# Time samples per second, if no number is given.
_TIME_SAMPLES = 1000

# The interpreters' names, by sys.implementation.name.
_NAMES = {"cpython": "CPython", "pypy": "PyPy"}
_EVERYWHERE = ("cpython", "pypy")


_UNITS_OF_TIME = (("ms", 0.001), ("us", 1e-6), ("s", 1.0), ("min", 60.0), ("m", 60.0), ("h", 3600.0))


def parse_seconds(text: str) -> float:
    """Returns a duration in seconds: ``60s``, ``1.5min``, ``500ms``, ``2h``; a number alone is in seconds.

    The command has the same rule in Rust, for the reason and with the table of texts of ``_size.py``.

    Raises ValueError, with one line for the user, if ``text`` is not a duration of up to a year.
    """
    number, factor = text.strip(), 1.0
    for unit, seconds in _UNITS_OF_TIME:
        if number.endswith(unit):
            number, factor = number[: -len(unit)].rstrip(), seconds
            break
    digits = number.replace(".", "", 1)
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{text!r} is not a time: write 60s, 1.5min or 500ms")
    value = float(number) * factor
    if value > 366 * 86400:
        raise ValueError(f"{text!r} is more than a year")
    return value


def parse_signal(text: str) -> int:
    """Returns the number of a signal that a program can handle: ``USR1``, ``SIGUSR1``, ``10``.

    Raises ValueError, with one line for the user, if there is no such signal.
    """
    import _signal  # type: ignore[import-not-found]

    name = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    number: Any = int(text) if text.isascii() and text.isdigit() else getattr(_signal, name, None)
    if name.startswith("SIG_") or not isinstance(number, int) or not 0 < number < _signal.NSIG:
        raise ValueError(f"there is no signal {text!r}: write USR1 or USR2, for example")
    if number in (_signal.SIGKILL, _signal.SIGSTOP):
        raise ValueError(f"no program can handle the signal {text!r}: use USR1, for example")
    return number


def parse_snapshot(text: str) -> float | str:
    """Returns when snapshots are taken: seconds between two of them, or the name of a signal.

    Raises ValueError, with one line for the user, if ``text`` is neither.
    """
    if not text[:1].isdigit():
        try:
            parse_signal(text)
        except ValueError:
            raise ValueError(
                f"--snapshot takes a time or a signal, not {text!r}: write 60s, or USR2, for example"
            ) from None
        return text
    return parse_seconds(text)


def parse_keep(text: str) -> dict[str, int]:
    """Returns how much of a profile is kept: a time, a size, or both with a comma between them.

    Raises ValueError, with one line for the user, if ``text`` is none of that.
    """
    kept = {}
    for word in text.split(","):
        try:
            key, value = "nanos", int(parse_seconds(word) * 1e9)
            if word.strip()[-1:].isdigit():
                raise ValueError
        except ValueError:
            try:
                key, value = "bytes", parse_size(word.strip())
            except ValueError:
                key = ""
        if not key or key in kept:
            raise ValueError(
                f"--keep takes a time, a size, or both, not {text!r}: write 24h, 500MB or 24h,500MB"
            )
        kept[key] = value
    return kept


# A process has so many tags at most, with so many characters in each key and value.
_MOST_TAGS = 64
_LONGEST_TAG = 256


def parse_tags(text: str) -> dict[str, str]:
    """Returns the labels of a process, by key: ``service:web,env:prod``, also with ``=`` in place of a colon.

    Raises ValueError, with one line for the user, if one of them has no key or no value, or is too long.
    """
    tags = {}
    for word in text.split(","):
        at = min((at for at in (word.find(":"), word.find("=")) if at >= 0), default=len(word))
        key, value = word[:at].strip(), word[at + 1 :].strip()
        if key and value:
            tags[key] = value
        elif word.strip():
            raise ValueError(f"{word.strip()!r} is no tag: write service:web,env:prod")
    return _checked_tags(tags)


def _checked_tags(tags: dict[str, str]) -> dict[str, str]:
    if len(tags) > _MOST_TAGS:
        raise ValueError(f"{len(tags)} tags are too many: a process has {_MOST_TAGS} at most")
    for key, value in tags.items():
        if max(len(key), len(value)) > _LONGEST_TAG:
            raise ValueError(f"the tag {key[:40]!r} is too long: take {_LONGEST_TAG} characters at most")
    return tags


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
        alone: Any = None,
        has_opposite: bool = False,
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
        self.alone = alone
        """The value if the command line has the option without one; None if it needs one."""
        self.has_opposite = has_opposite
        """Whether ``--no-…`` is an option too. The first means True, the other one False."""

    @property
    def flag(self) -> str:
        """The long form: ``--huge-pages``; ``--no-native`` for an option that is on by default."""
        return ("--no-" if self.default is True else "--") + self.name.replace("_", "-")

    @property
    def flags(self) -> tuple[str, ...]:
        """The short form, if any, and the long forms."""
        if self.has_opposite:
            return (self.flag, f"--no-{self.flag[2:]}")
        return (self.short, self.flag) if self.short else (self.flag,)

    def value_of(self, flag: str) -> bool:
        """The value that the option gets from this flag, if it has no other value."""
        return flag == self.flag if self.has_opposite else not self.default

    @property
    def shown(self) -> str:
        """The placeholder as the help shows it, with brackets if the value may be missing; empty without a value."""
        if not self.placeholder:
            return ""
        return self.placeholder if self.alone is None else f"[{self.placeholder}]"

    def takes(self, words: list[str]) -> bool:
        """Whether the next of these words is the option's value."""
        return bool(self.placeholder) and (self.alone is None or bool(words and words[0].isdecimal()))

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


def _switch(flag: str) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"{flag} is True or False, not {value!r}")
        return value

    return check


def _time_samples(value: Any) -> int | None:
    if isinstance(value, bool):
        return _TIME_SAMPLES if value else None
    return _number("--cpu", 1, 10_000, "from 1 to 10000")(value)


def _snapshot(value: Any) -> float | int:
    """Returns seconds as a float, and the number of a signal as an int."""
    if isinstance(value, str):
        value = parse_snapshot(value)
        if isinstance(value, str):
            return parse_signal(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"--snapshot is a number of seconds, 60s, or the name of a signal, not {value!r}")
    if value < 0.1:
        raise ValueError(f"--snapshot {value:g}s is too often: take 100ms or more")
    return float(value)


def _tags(value: Any) -> dict[str, str]:
    if isinstance(value, str):
        return parse_tags(value)
    if not isinstance(value, dict) or not all(isinstance(one, str) for tag in value.items() for one in tag):
        raise ValueError(f"--tags has keys with values, such as service:web,env:prod, not {value!r}")
    return _checked_tags(value)


# The least that is kept: parts of it have half a second, or a tenth of a mebibyte.
_LEAST_NANOS = 4_000_000_000
_LEAST_BYTES = 1 << 20


def _keep(value: Any) -> dict[str, int]:
    if not isinstance(value, str):
        raise ValueError(f"--keep is a time or a size, such as '24h' or '500MB', not {value!r}")
    kept = parse_keep(value)
    if kept.get("nanos", _LEAST_NANOS) < _LEAST_NANOS or kept.get("bytes", _LEAST_BYTES) < _LEAST_BYTES:
        raise ValueError(f"--keep {value} is too little: take 4s and 1MiB, or more")
    return kept


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
        "force",
        "replace the profile OUT if it exists, and with --signal later recordings' profiles, OUT-2 and so on; "
        "without it, new names are taken",
        default=False,
        short="-f",
        check=_switch("--force"),
    ),
    Option(
        "every",
        "mean distance between samples, from 64B to 1TiB; 1 records every allocation; auto begins with 16KiB and "
        "follows the program, so that samples take 0.5 % of its CPU time (default: auto, or "
        "512KiB with --seed)",
        placeholder="SIZE",
        read=parse_period,
        check=parse_period,
    ),
    Option(
        "fixed",
        "sample at exactly every SIZE bytes, by default 512KiB, instead of at random distances",
        default=False,
        check=_switch("--fixed"),
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
        "also take time samples, HZ per second of CPU time (1000 without a number)",
        placeholder="HZ",
        read=int,
        check=_time_samples,
        alone=_TIME_SAMPLES,
    ),
    Option(
        "native",
        "record native memory: calls of malloc, and mappings of anonymous memory. It is recorded where that is "
        "possible; --native makes it an error if it is not, and --no-native leaves it out",
        check=_switch("--native"),
        has_opposite=True,
    ),
    Option(
        "native_frames",
        "record native memory, and the frames of C, C++ and Rust code in its stacks and in time samples'",
        default=False,
        check=_switch("--native-frames"),
        interpreters=("cpython",),
    ),
    Option(
        "huge_pages",
        "memory pages of the object heap: transparent huge pages (thp), pages of the system's pool of huge "
        "pages (hugetlb; not for programs that fork), or ordinary pages (off) (default: thp)",
        default=DEFAULT_HUGE_PAGES,
        placeholder="KIND",
        check=_huge_pages,
        interpreters=("cpython",),
    ),
    Option(
        "children",
        "record this process only. Without it, its children and the Python programs that it starts write profiles of "
        "their own beside this one",
        default=True,
        is_argument=False,
    ),
    Option(
        "holders",
        "look at who holds what is alive, in a copy of the process: at the end, at new peaks of memory and at "
        "nthbyte.snapshot(). It is done where 1 % of the program's CPU time pays for it, at the end also where it "
        "takes a 500th of the time, up to 20 ms; --holders does it whatever it costs, and --no-holders never",
        check=_switch("--holders"),
        has_opposite=True,
    ),
    Option(
        "names",
        "leave the keys of dictionaries, which are the program's data, out of what --holders records",
        default=True,
        check=_switch("--no-names"),
    ),
    Option(
        "snapshot",
        "look at who holds what every TIME, too, such as 60s, or whenever the signal NAME comes, such as USR2",
        placeholder="TIME|NAME",
        read=parse_snapshot,
        check=_snapshot,
    ),
    Option(
        "keep",
        "keep what was recorded in the last TIME, such as 24h, or in files of so many bytes together, such as 500MB, "
        "or both (24h,500MB): older parts are dropped, but for sums and live samples",
        placeholder="TIME|SIZE",
        check=_keep,
    ),
    Option(
        "tags",
        "labels of the whole process, which all its samples have: service:web,env:prod (default: the environment "
        "variable NTHBYTE_TAGS)",
        placeholder="KEY:VALUE,…",
        read=parse_tags,
        check=_tags,
    ),
    Option(
        "start_after",
        "begin to record when the program has run for TIME: 60s, 1.5min, 500ms",
        placeholder="TIME",
        read=parse_seconds,
        is_argument=False,
    ),
    Option(
        "for",
        "record for TIME, then stop recording while the program runs on",
        placeholder="TIME",
        read=parse_seconds,
        is_argument=False,
    ),
    Option(
        "signal",
        "begin to record at the signal NAME (USR1, for example), end at the next one; each recording has its own file",
        placeholder="NAME",
        read=parse_signal,
        is_argument=False,
    ),
    Option(
        "ready",
        "record nothing until `nthbyte attach` asks for it, which needs no rights then",
        default=False,
        is_argument=False,
    ),
    Option("quiet", "print nothing at the end", default=False, short="-q", is_argument=False),
)


def with_argument_names(text: str) -> str:
    """Returns a message with the arguments of ``start`` in place of the command's options."""
    text = text.replace(" with -o", "")
    # A longer flag may contain a shorter one.
    for option in sorted(OPTIONS, key=lambda option: -len(option.flag)):
        if option.has_opposite:
            text = text.replace(option.flags[1], f"{option.name}=False")
        text = text.replace(option.flag, option.name)
    return text


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
    needs_constant = checked["fixed"] or checked["seed"] is not None
    if checked["every"] is None:
        checked["every"] = CONSTANT_PERIOD if needs_constant else AUTO
    if checked["fixed"] and checked["every"] == 1:
        raise ValueError("--fixed and --every 1 exclude each other: every allocation is recorded already")
    if checked["every"] == AUTO and needs_constant:
        other = "--fixed" if checked["fixed"] else "--seed"
        raise ValueError(
            f"--every auto and {other} exclude each other: the period depends on the program's speed; give a size"
        )
    if checked["snapshot"] is not None and checked["holders"] is False:
        raise ValueError("--snapshot and --no-holders exclude each other: leave one out")
    if checked["native_frames"] and checked["native"] is False:
        raise ValueError("--native-frames and --no-native exclude each other: leave one out")
    return checked
