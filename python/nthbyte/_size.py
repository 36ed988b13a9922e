"""Reads and prints sizes: ``512KiB``, ``512K``, ``0.5MiB``, ``524288``.

The command has the same rule in Rust (``crates/sampling/src/size.rs``). Here is no Rust at hand: what agent is loaded
depends on the options, and ``tune`` and the plugin for pytest read sizes where there is none. The tests of both read
``tests/amounts.json``.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Union

    Size = Union[int, str]

# The period that follows the program, and with which it begins: the default.
AUTO = "auto"
FIRST_AUTO_PERIOD = 16 * 1024
# The period where none is given and it cannot follow the program.
CONSTANT_PERIOD = 512 * 1024
SMALLEST_PERIOD = 64
LARGEST_PERIOD = 1 << 40

_UNITS = "BKMGT"
_SPACE = " \t\n\r\f\v"


def parse_size(size: Size) -> int:
    """Returns a size in bytes. All units are binary: ``1K`` is 1024.

    Raises ValueError, with one line for the user, if ``size`` is not a size of whole bytes.
    """
    if isinstance(size, bool) or not isinstance(size, (int, str)):
        raise ValueError(f"a size is a number of bytes or a text such as '512KiB', not {size!r}")
    if isinstance(size, int):
        return size
    text = size.strip(_SPACE)
    number = text.rstrip("BKMGTIbkmgti")
    unit, tail = text[len(number) :][:1].upper(), text[len(number) :][1:].upper()
    whole, _, fraction = number.rstrip(_SPACE).partition(".")
    digits = whole + fraction
    known = unit in _UNITS and tail in ("", "B", "IB") and not (tail and unit == "B")
    if not (known and digits.isascii() and digits.isdigit()):
        raise ValueError(f"{size!r} is not a size: write 512KiB, 0.5MiB or 524288")
    factor: int = 1 << 10 * _UNITS.index(unit or "B")
    # Decimal integers are exact; a float would round numbers such as 2**40 + 0.5.
    scaled = int(digits) * factor
    denominator: int = 10 ** len(fraction)
    value, rest = divmod(scaled, denominator)
    if rest:
        raise ValueError(f"{size!r} is not a whole number of bytes")
    return value


def parse_period(size: Size) -> int | str:
    """Returns the mean distance between samples in bytes; 1 stands for "every allocation". ``"auto"`` stays as it is.

    Raises ValueError, with one line for the user, unless it is 1 or from 64 B to 1 TiB.
    """
    if size == AUTO:
        return AUTO
    period = parse_size(size)
    if period == 1 or SMALLEST_PERIOD <= period <= LARGEST_PERIOD:
        return period
    raise ValueError(
        f"a period of {size} is out of range: from 64B to 1TiB, 1 to record every allocation, or auto"
    )


def format_size(size: float) -> str:
    """Returns a size as text with a binary unit: ``512 B``, ``1.5 KiB``, ``20.3 GiB``."""
    if size < 1024:
        return f"{size:.0f} B"
    unit = 0
    while size >= 1023.95 and unit < len(_UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{size:.1f} {_UNITS[unit]}iB"
