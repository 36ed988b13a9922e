"""The lint of import directions, on small generated trees: each is refused for the expected reason only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from structure import crates, files, python
from structure.rust import MissingModule, read_crate, references

LIBRARY = {
    "lib.rs": "mod a; mod b; mod c;",
    "a.rs": "",
    "b/mod.rs": "mod inner;",
    "b/inner.rs": "",
    "c.rs": "",
}
A_TO_B = {"a.rs": "use crate::b::inner::Thing;"}
DEFINES_THING = {"b/inner.rs": "pub struct Thing;"}


def write(folder: Path, contents: dict[str, str]) -> None:
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def edges(folder: Path, contents: dict[str, str]) -> set[str]:
    """Returns who refers to whom in a crate with these files: `a.rs -> b/mod.rs`."""
    write(folder, {**LIBRARY, **contents})
    found = references(read_crate(folder / "lib.rs"))
    return {f"{one.source.relative_to(folder)} -> {one.target.relative_to(folder)}" for one in found}


@pytest.mark.parametrize(
    "text",
    [
        "use crate::b::inner::Thing;",
        "use crate::b::{inner::Thing as Other};",
        "use crate::{b::{self, inner}, c as _};\nfn f(_: b::inner::Thing) {}",
        "use super::b::inner::*;",
        "fn f() { super::b::inner::make() }",
        "fn f() { use crate::b::inner; inner::make() }",
        "macro_rules! m { () => { $crate::b::inner::make() } }",
        "struct S { thing: Option<crate::b::inner::Thing> }",
        "mod part { fn f() { super::super::b::inner::make() } }",
        "#[cfg(not(test))]\nuse crate::b::inner::Thing;",
        "#[cfg(test)]\nmod tests { use crate::c::X; }\nuse crate::b::inner::Thing;",
        "#[cfg(test)] use crate::c::X;\nuse crate::b::inner::Thing;",
        "use crate::r#b::inner::Thing;",
        "const C: char = '\"'; use crate::b::inner::Thing; const D: char = '\"';",
        "use crate::b::Thing;",
        "use crate::Thing;",
        "use crate::{\n    // not c::X\n    Thing,\n};",
        "use crate::all::Thing;",
    ],
)
def test_a_reference_is_found_at_what_it_names(text: str, tmp_path: Path) -> None:
    reexports = {
        "lib.rs": "mod a; mod b; mod c; pub use b::Thing; mod all { pub use crate::b::inner::*; }",
        "b/mod.rs": "mod inner; pub(crate) use inner::Thing;",
        "b/inner.rs": "pub struct Thing; pub fn make() {}",
        "a.rs": text,
    }
    found = {edge for edge in edges(tmp_path, reexports) if edge.startswith("a.rs")}
    assert "a.rs -> b/inner.rs" in found
    assert "a.rs -> c.rs" not in found or "c as _" in text


@pytest.mark.parametrize(
    "text",
    [
        "// use crate::b::inner::Thing;",
        "/* use crate::b; /* nested */ crate::b::inner::make() */",
        '/// See [`crate::b::inner`].\nconst S: &str = "crate::b::inner::make()";',
        'const S: &str = r#"a " crate::b::inner::make() "#;',
        "#[cfg(test)]\nmod tests { use crate::b::inner::Thing; }",
        "#[cfg(test)]\n#[allow(unused)]\nmod tests { use crate::b::inner::Thing; }",
        "#[cfg(all(test, unix))]\nuse crate::b::inner::Thing;",
        "#[cfg(test)]\nfn f() -> crate::b::inner::Thing { crate::b::inner::make() }",
        "struct S { #[cfg(test)] thing: crate::b::inner::Thing, other: u8 }",
        "use std::b::inner::Thing;",
        "fn f(x: X) { x.b::<u8>() }",
    ],
)
def test_text_that_is_not_a_reference(text: str, tmp_path: Path) -> None:
    assert not {edge for edge in edges(tmp_path, {"a.rs": text, **DEFINES_THING}) if "-> b/" in edge}


def test_modules_are_found_where_they_are(tmp_path: Path) -> None:
    contents = {
        "lib.rs": '#[path = "other/place.rs"]\nmod a; mod b; mod d; mod e { mod f; }',
        "other/place.rs": "use crate::d::deep::X;",
        "d.rs": "mod deep;",
        "d/deep.rs": "pub struct X;",
        "e/f.rs": "use crate::b::inner::Y;",
    }
    assert edges(tmp_path, contents) == {"other/place.rs -> d/deep.rs", "e/f.rs -> b/inner.rs"}
    with pytest.raises(MissingModule, match=r"lib.rs:1: no file for `mod gone`"):
        edges(tmp_path, {"lib.rs": "mod gone;"})


def test_a_module_that_only_re_exports_refers_to_nothing(tmp_path: Path) -> None:
    handed_on = {"b/mod.rs": "mod inner; pub use inner::Thing;", **DEFINES_THING}
    assert edges(tmp_path, handed_on) == set()
    used = {"b/mod.rs": "mod inner; pub use inner::Thing; fn f(_: Thing) {}", **DEFINES_THING}
    assert edges(tmp_path, used) == {"b/mod.rs -> b/inner.rs"}


PROJECT = {
    "ARCHITECTURE.md": "One way: `low ← high`.",
    "crates/low/Cargo.toml": "[package]\nname = 'nthbyte-low'\n",
    "crates/low/src/lib.rs": "",
    "crates/high/Cargo.toml": "[package]\nname = 'nthbyte-high'\n[dependencies]\nnthbyte-low.workspace = true\n",
    "crates/high/src/lib.rs": "use nthbyte_low::X;",
}


def wrong_crates(folder: Path, changed: dict[str, str], direction: Any = None) -> list[str]:
    write(folder, {**PROJECT, **changed})
    stated = {"low": [], "high": ["low"]} if direction is None else direction
    return list(crates.check(folder, {"crates": stated}))


def test_a_correct_project(tmp_path: Path) -> None:
    assert wrong_crates(tmp_path, {}) == []


@pytest.mark.parametrize(
    "manifest",
    [
        "[dependencies]\nnthbyte-high.workspace = true\n",
        "[dev-dependencies]\nnthbyte-high = { path = '../high' }\n",
        "[target.'cfg(unix)'.dependencies]\nnthbyte-high = '0.1'\n",
        "[build-dependencies]\nother = { package = 'nthbyte-high', version = '1' }\n",
    ],
)
def test_a_dependency_against_the_direction(manifest: str, tmp_path: Path) -> None:
    assert wrong_crates(tmp_path, {"crates/low/Cargo.toml": manifest}) == [
        "crates/low/Cargo.toml: `low` may not depend on `high`"
    ]


def test_a_table_that_is_not_the_projects(tmp_path: Path) -> None:
    found = wrong_crates(tmp_path, {"crates/new/Cargo.toml": ""})
    assert found == ["crates/new: rules.toml does not say what it may depend on"]
    for file in ("crates/new", "crates/high/Cargo.toml"):
        path = tmp_path / file
        (path / "Cargo.toml").unlink() if path.is_dir() else path.unlink()
    del (changed := dict(PROJECT))["crates/high/Cargo.toml"]
    write(tmp_path, changed)
    stated = {"crates": {"low": [], "high": ["low"]}}
    assert list(crates.check(tmp_path, stated)) == ["rules.toml: there is no crate `high`"]


def test_a_table_with_a_circle(tmp_path: Path) -> None:
    picture = {"ARCHITECTURE.md": "`low ← high` and `high ← low`"}
    found = wrong_crates(tmp_path, picture, {"low": ["high"], "high": ["low"]})
    assert found == ["rules.toml: the stated direction is a circle: high -> low -> high"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing", "its chains do not show `low ← high`"),
        ("`low ← high`, `high ← low`", "shows `high ← low`, which rules.toml does not state"),
        ("`low ← high, higher`", "shows `low ← higher`, which rules.toml does not state"),
    ],
)
def test_a_picture_that_is_not_the_table(text: str, said: str, tmp_path: Path) -> None:
    [line] = wrong_crates(tmp_path, {"ARCHITECTURE.md": text})
    assert said in line


def wrong_cycles(folder: Path, contents: dict[str, str]) -> list[str]:
    sources = {f"crates/low/src/{name}": text for name, text in {**LIBRARY, **contents}.items()}
    return wrong_crates(folder, sources)


A_AND_C = {"a.rs": "use crate::c::X;", "c.rs": "use crate::a::Y;"}


def test_files_in_a_circle_need_a_reason(tmp_path: Path) -> None:
    [line] = wrong_cycles(tmp_path, A_AND_C)
    assert line == "crates/low: a circle of files, without a reason in rules.toml: a.rs, c.rs"
    stated = {"low": [], "high": ["low"]}

    def wrong(circles: Any) -> list[str]:
        return list(crates.check(tmp_path, {"crates": stated, "circles": circles}))

    stays = {"crate": "low", "files": ["a.rs", "c.rs"], "reason": "a table and its users"}
    assert wrong({"stay": [stays]}) == []
    # Another file joins the circle.
    wider = {**A_AND_C, "c.rs": "use crate::b::inner::Z;", "b/inner.rs": "use crate::a::Y;"}
    write(tmp_path / "crates/low/src", wider)
    assert any("a.rs, b/inner.rs, c.rs" in line for line in wrong({"stay": [stays]}))
    # It is gone.
    write(tmp_path / "crates/low/src", {**LIBRARY, "c.rs": ""})
    assert wrong({"stay": [stays]}) == ["rules.toml: there is no such circle in crates/low: a.rs, c.rs"]


def test_files_of_one_folder_may_refer_to_each_other(tmp_path: Path) -> None:
    assert (
        wrong_cycles(
            tmp_path,
            {
                "a.rs": "use crate::c::X;",
                **DEFINES_THING,
                "b/mod.rs": "mod inner; use inner::Thing; fn f(_: Thing) {}",
            },
        )
        == []
    )


@pytest.mark.parametrize(
    ("contents", "cycle"),
    [
        ({"b/inner.rs": "use crate::a::X; pub struct Thing;", **A_TO_B}, "a.rs -> b/ -> a.rs"),
        # By way of a file that is not part of it otherwise.
        (
            {
                **A_TO_B,
                "b/inner.rs": "use crate::c::X; pub struct Thing;",
                "c.rs": "fn f() { crate::a::f() }",
            },
            "a.rs -> b/ -> c.rs -> a.rs",
        ),
        # Other files of the same two folders: the folders have the cycle.
        (
            {
                "lib.rs": "mod b; mod d;",
                "b/mod.rs": "mod inner; mod other;",
                "b/inner.rs": "use crate::d::one::X;",
                "b/other.rs": "pub struct X;",
                "d.rs": "mod one; mod two;",
                "d/one.rs": "pub struct X;",
                "d/two.rs": "use super::super::b::other::X;",
            },
            "b/ -> d/ -> b/",
        ),
        # A child that needs what its parent's file defines, while that needs the child.
        (
            {"lib.rs": "mod b; pub fn f() { b::inner::g() }", "b/inner.rs": "pub fn g() { crate::f() }"},
            "b/ -> lib.rs -> b/",
        ),
    ],
)
def test_a_cycle_between_folders(contents: dict[str, str], cycle: str, tmp_path: Path) -> None:
    lines = wrong_cycles(tmp_path, contents)
    [line] = [line for line in lines if "a circle of files" not in line]
    assert f"crates/low/src: a cycle {cycle} (" in line


PACKAGE = {"__init__.py": "", "top.py": "from nthbyte.low import x\n", "low.py": "import os\n"}
LAYERS: dict[str, Any] = {"layers": [["__init__"], ["top"], ["low"]]}


def wrong_python(folder: Path, changed: dict[str, str], late: Any = ()) -> list[str]:
    write(folder / "python" / "nthbyte", {**PACKAGE, **changed})
    return list(python.check(folder, {"python": {**LAYERS, "late": dict(late)}}))


def test_a_correct_package(tmp_path: Path) -> None:
    assert wrong_python(tmp_path, {"low.py": "if TYPE_CHECKING:\n    import nthbyte.top\n"}) == []


@pytest.mark.parametrize(
    "text",
    [
        "from nthbyte.top import x",
        "import nthbyte.top as t",
        "from nthbyte import top",
        "from .top import x",
        "from . import top",
        "def f():\n    from nthbyte.top import x",
        "if TYPE_CHECKING:\n    pass\nelse:\n    import nthbyte.top",
    ],
)
def test_an_import_from_above(text: str, tmp_path: Path) -> None:
    [line] = wrong_python(tmp_path, {"low.py": text})
    assert line.endswith("`low` may not import `top`, which is not below it")


def test_a_late_import_needs_a_reason(tmp_path: Path) -> None:
    late = {"low -> top": "because"}
    assert wrong_python(tmp_path, {"low.py": "def f():\n    import nthbyte.top"}, late) == []
    assert wrong_python(tmp_path, {}, late) == ["rules.toml: `low -> top` is not needed any more"]
    at_once = wrong_python(tmp_path, {"low.py": "import nthbyte.top"}, late)
    assert "may not import" in at_once[0]


def test_modules_have_a_layer(tmp_path: Path) -> None:
    [line] = wrong_python(tmp_path, {"new.py": ""})
    assert line == "python/nthbyte/new.py: rules.toml does not say in which layer it is"
    (tmp_path / "python/nthbyte/new.py").unlink()
    (tmp_path / "python/nthbyte/top.py").unlink()
    assert list(python.check(tmp_path, {"python": LAYERS})) == [
        "rules.toml: there is no python/nthbyte/top.py"
    ]


def wrong_files(folder: Path, name: str, lines: int, longer: Any = ()) -> list[str]:
    write(folder, {name: "x\n" * lines})
    own = {"longest": 3, "folders": ["src"], "suffixes": [".rs"], "left_out": ["src/made"]}
    return list(files.check(folder, {"files": {**own, "forbidden_names": ["utils"], "longer": dict(longer)}}))


def test_long_files_need_a_reason(tmp_path: Path) -> None:
    assert wrong_files(tmp_path, "src/made/long.rs", 10) == []
    assert wrong_files(tmp_path, "src/a.rs", 3) == []
    [line] = wrong_files(tmp_path, "src/a.rs", 4)
    assert line == "src/a.rs: 4 lines of code, more than 3, and rules.toml has no reason for it"
    assert wrong_files(tmp_path, "src/a.rs", 4, {"src/a.rs": "a table"}) == []
    [line] = wrong_files(tmp_path, "src/a.rs", 3, {"src/a.rs": "a table"})
    assert line == "rules.toml: src/a.rs has 3 lines of code and needs no exception"
    [line] = wrong_files(tmp_path, "src/a.rs", 3, {"src/gone.rs": "a table"})
    assert line == "rules.toml: there is no src/gone.rs"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("//! What.\n\nfn f() {\n    // Why.\n    let x = *y;\n    *x = 1; // So.\n}\n", 4),
        ("#![no_std]\n#[inline]\nfn f() {}\n\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n", 3),
        ("#[cfg(test)]\nmod tests;\nfn f() {}\n", 3),
        ("#!/bin/sh\n# Why.\nx=1\n", 1),
        ("/*\n * Why.\n */\n.a { margin: 0 }\n<!-- no -->\n", 1),
    ],
)
def test_comments_blank_lines_and_tests_are_not_counted(text: str, lines: int) -> None:
    assert files.lines_of_code(text) == lines


@pytest.mark.parametrize("name", ["src/utils.rs", "src/utils/mod.rs"])
def test_names_without_meaning_are_refused(name: str, tmp_path: Path) -> None:
    assert wrong_files(tmp_path, name, 1) == [f"{name}: `utils` says nothing of what is in it"]


def test_a_file_of_tests_is_named_by_its_program(tmp_path: Path) -> None:
    folder = "crates/a/tests"
    made = {f"{folder}/all.rs": "mod one;\n", f"{folder}/one.rs": "", f"{folder}/deep/main.rs": "mod own;\n"}
    write(tmp_path, {**made, f"{folder}/deep/own.rs": "", "crates/b/tests/alone.rs": ""})
    assert list(files.unnamed_tests(tmp_path)) == []
    write(tmp_path, {f"{folder}/other.rs": "", f"{folder}/deep/new.rs": ""})
    assert list(files.unnamed_tests(tmp_path)) == [
        f"{folder}/all.rs: `mod other;` is missing",
        f"{folder}/deep/main.rs: `mod new;` is missing",
    ]
