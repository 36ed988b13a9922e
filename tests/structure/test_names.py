"""The lint of public names, on small generated trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from structure import names

ONE = {"one/src/lib.rs": "pub struct Row;"}


def wrong(root: Path, sources: dict[str, str], reasons: dict[str, str] | None = None) -> list[str]:
    for name, text in sources.items():
        path = root / "crates" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(names.check(root, {"names": reasons or {}}))


@pytest.mark.parametrize(
    "other",
    [
        {"two/src/lib.rs": "#[derive(Clone)]\npub enum Row { A }"},
        {"two/src/lib.rs": "pub mod a;", "two/src/a.rs": "pub unsafe trait Row {}"},
        {"two/src/lib.rs": "mod a; pub use a::Row;", "two/src/a.rs": "pub type Row = u32;"},
        {"two/src/lib.rs": "mod a; pub use a::{Row as Line};", "two/src/a.rs": "pub struct Row;"},
        {"two/src/lib.rs": "mod a; pub use a::*;", "two/src/a.rs": "pub struct Row;"},
        {"two/src/lib.rs": "mod a; pub use a::b;", "two/src/a.rs": "pub mod b { pub struct Row; }"},
    ],
)
def test_a_name_of_two_crates(other: dict[str, str], tmp_path: Path) -> None:
    [line] = wrong(tmp_path, {**ONE, **other})
    assert line.startswith("`Row` is public in crates/one/src/lib.rs, crates/two/src/")
    assert wrong(tmp_path, {}, {"Row": "the same rows"}) == []


@pytest.mark.parametrize(
    "other",
    [
        {"two/src/lib.rs": "pub(crate) struct Row; struct Private; fn row() { struct Row; }"},
        {"two/src/lib.rs": "mod a;", "two/src/a.rs": "pub struct Row;"},
        {"two/src/lib.rs": "mod a; pub(crate) use a::Row;", "two/src/a.rs": "pub struct Row;"},
        {"two/src/lib.rs": "pub use one::Row; pub fn row() -> Row { Row }"},
        {"two/src/lib.rs": "#[cfg(test)]\nmod tests { pub struct Row; }"},
    ],
)
def test_a_name_that_only_one_crate_has(other: dict[str, str], tmp_path: Path) -> None:
    assert wrong(tmp_path, {**ONE, **other}) == []


def test_a_reason_that_is_not_needed_any_more(tmp_path: Path) -> None:
    assert wrong(tmp_path, ONE, {"Row": "the same rows"}) == [
        "rules.toml: `Row` is not public in several places"
    ]
