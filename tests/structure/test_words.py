"""The check of words: forbidden words are found, and normal English is accepted."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomllib

from structure import words

WORDS = tomllib.loads((Path(__file__).parent / "words.toml").read_text())


def found(folder: Path, name: str, text: str) -> list[str]:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return list(words.check(folder, WORDS))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("crates/a/src/lib.rs", "\nfn deal_all() {}", "crates/a/src/lib.rs:2: `deal_all`: say refill"),
        ("crates/a/src/lib.rs", "struct DealtList;", "`DealtList`: say refilled"),
        ("crates/a/src/lib.rs", "const PATIENCE: u8 = 1;", "`PATIENCE`: say"),
        ("crates/a/src/lib.rs", "enum Seldom { X }", "`Seldom`: say"),
        ("crates/a/src/lib.rs", "fn f() { session.attend() }", "`attend`: say fork state"),
        ("crates/a/src/deaths.rs", "mod deaths;", "`deaths`: say dealloc hook"),
        ("crates/a/src/lib.rs", "/// They are\n/// dealt again.\nfn f() {}", ":2: `dealt`: say"),
        ("crates/a/src/lib.rs", "/* It goes\n by and by. */", ":2: `by and by`: say"),
        ("python/a.py", "patience = 3", "`patience`: say"),
        ("python/a.py", 'def f():\n    """Runs out of\n    patience."""', ":3: `patience`: say"),
        ("python/a.py", "x = 1  # seldom", "`seldom`: say"),
        ("web/src/a.ts", "const shown = `Shown`; // by and by", "`by and by`: say"),
        ("docs/a.md", "Guests do not panic.", "`Guests do not panic`: say"),
        ("README.md", "By and by.", "`By and by`: say"),
    ],
)
def test_a_forbidden_word_is_found(name: str, text: str, said: str, tmp_path: Path) -> None:
    [line] = found(tmp_path, name, text)
    assert said in line


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("crates/a/src/lib.rs", "fn dealloc(ideal: u8) { told(shown, made, taken, rest) } // A great deal."),
        ("crates/a/src/lib.rs", '// What is dealt with here.\nconst S: &str = "patience";'),
        ("python/a.py", 'print("have patience")'),
        ("docs/a.md", "One deals with it, is told, and pays attention."),
        ("tests/structure/a.py", "patience = 3"),
        ("target/a.rs", "fn deal() {}"),
    ],
)
def test_normal_english_is_accepted(name: str, text: str, tmp_path: Path) -> None:
    assert found(tmp_path, name, text) == []
