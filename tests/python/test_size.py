"""Sizes, read and printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nthbyte._size import format_size, parse_period, parse_size

AMOUNTS = json.loads((Path(__file__).parents[1] / "amounts.json").read_text())
"""Sizes and times as users write them: the commands in Rust read the same table."""

UNITS = {
    "": 1,
    "B": 1,
    "K": 1 << 10,
    "KiB": 1 << 10,
    "KB": 1 << 10,
    "M": 1 << 20,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}


@given(st.integers(0, 1 << 50), st.sampled_from(sorted(UNITS)), st.sampled_from(["", " "]))
def test_a_number_and_a_unit_multiply(number: int, unit: str, space: str) -> None:
    assert parse_size(f"{number}{space}{unit}") == number * UNITS[unit]
    assert parse_size(f"{number}{unit.lower()}") == number * UNITS[unit]


@pytest.mark.parametrize(("text", "size"), AMOUNTS["sizes"])
def test_sizes_are_read_as_everywhere(text: str, size: int | None) -> None:
    if size is None:
        with pytest.raises(ValueError, match=r"size|whole number"):
            parse_size(text)
    else:
        assert parse_size(text) == size


@given(st.integers(0, 1 << 60))
def test_fractions_are_exact(size: int) -> None:
    whole, rest = divmod(size, 1 << 10)
    # A fraction of 1024 has ten decimals at most.
    fraction = str(rest * 10**10 // 1024).rjust(10, "0")
    assert parse_size(f"{whole}.{fraction}KiB") == size
    assert parse_size(size) == size


@given(st.text(max_size=12))
@example("")
@example(".")
@example("1e3")
@example("١٢")
@example("-5")
@example("512KiBs")
@example("0.3K")
def test_other_text_gives_an_error_of_one_line(text: str) -> None:
    try:
        size = parse_size(text)
    except ValueError as refusal:
        said = str(refusal)
        assert len(said.splitlines()) == 1
    else:
        assert size >= 0


@pytest.mark.parametrize("wrong", [0, 2, 63, -1, (1 << 40) + 1, "2TiB", "63", "0", True, None, 1.5])
def test_periods_have_bounds(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"size|period"):
        parse_period(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "period"), [("1", 1), ("64B", 64), ("1TiB", 1 << 40), ("0.5MiB", 1 << 19), ("auto", "auto")]
)
def test_periods_within_bounds(text: str, period: int | str) -> None:
    assert parse_period(text) == period


@given(st.integers(0, 1 << 49))
def test_a_printed_size_is_exact_up_to_its_last_digit(size: int) -> None:
    text = format_size(size)
    number, unit = text.split()
    factor = UNITS.get(unit, 1 << 40)
    assert abs(float(number) * factor - size) <= 0.0501 * factor
    assert float(number) < 1024
