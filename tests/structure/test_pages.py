"""The lint of sizes of pages, on small generated files."""

from __future__ import annotations

from pathlib import Path

import pytest

from structure import pages


def found(folder: Path, text: str, allowed: dict[str, str] | None = None) -> list[str]:
    path = folder / "crates" / "a" / "src" / "lib.rs"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return list(pages.check(folder, {"pages": {"constant": allowed or {}}}))


@pytest.mark.parametrize(
    "text",
    [
        "fn f(at: usize) -> usize { at & !0xfff }",
        "fn f(at: usize) -> usize { at % 4096 }",
        "fn f(at: usize) -> usize { at.next_multiple_of(4096) }",
        "fn f(at: usize) -> bool { at & 4095 == 0 }",
        "fn f(at: usize) -> usize { at & !(4096 - 1) }",
        "#[repr(align(4096))]\nstruct Page;",
    ],
)
def test_a_constant_is_found(text: str, tmp_path: Path) -> None:
    [line] = found(tmp_path, f"\n{text}")
    assert line.startswith("crates/a/src/lib.rs:2: ")


@pytest.mark.parametrize(
    "text",
    [
        "const MOST: usize = 4096;",
        "fn f(at: usize) -> usize { at % page_size() }",
        "fn f(at: usize) -> usize { at & 0xffff }",
        "// at & 4095",
        "#[cfg(test)]\nmod tests { fn f(at: usize) -> usize { at % 4096 } }",
    ],
)
def test_other_code_is_accepted(text: str, tmp_path: Path) -> None:
    assert found(tmp_path, text) == []


def test_an_exception_has_a_use(tmp_path: Path) -> None:
    allowed = {"crates/a/src/lib.rs": "the smallest page"}
    assert found(tmp_path / "used", "fn f(at: usize) -> usize { at % 4096 }", allowed) == []
    assert found(tmp_path / "unused", "", allowed) == [
        "rules.toml: crates/a/src/lib.rs has no size of a page"
    ]
