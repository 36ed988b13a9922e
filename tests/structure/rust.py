"""The modules of a Rust crate, and which refers to which.

Only the text is read: `use` declarations, and paths of two names or more anywhere, also in macros. A path leads to the
module that *defines* the named item: re-exports are followed. Code that is compiled for tests only is left out.

Not seen: names that a macro makes, methods, and single names that a `use …::*` brings in (the `use` itself is seen).

`cargo modules` (0.27) knows more, for it has rust-analyzer, but takes 14 to 45 seconds for each of the crates
(the whole check of this tree takes six), and sees one target and one set of features at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from structure.tokens import Token, split

_OPEN = {"{": "}", "(": ")", "[": "]"}
_TYPES = {"struct", "enum", "union", "trait", "type"}
_ITEMS = {*_TYPES, "fn", "const", "static", "macro_rules"}


@dataclass
class Use:
    """A `use` declaration of one name."""

    path: list[str]
    is_public: bool
    """Whether it passes the name on, be it inside of the crate only."""
    is_exported: bool
    """Whether it passes the name on to everybody who sees the module."""
    line: int


@dataclass
class Module:
    """A module: a file, or a part of one."""

    name: str
    file: Path
    parent: Module | None
    folder: Path
    """Where the files of its children are."""
    children: dict[str, Module] = field(default_factory=dict)
    uses: dict[str, Use] = field(default_factory=dict)
    globs: list[Use] = field(default_factory=list)
    items: set[str] = field(default_factory=set)
    is_public: bool = False
    """Whether its parent declares it as `pub`."""
    public_types: set[str] = field(default_factory=set)
    """The types in it that are `pub`."""
    paths: list[tuple[list[str], int]] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    """The number of uses of each name outside of `use` declarations."""

    @property
    def root(self) -> Module:
        """The root of the crate."""
        return self.parent.root if self.parent else self

    @property
    def path(self) -> str:
        """Its path in the crate: `crate::sampling::walk`."""
        return f"{self.parent.path}::{self.name}" if self.parent else "crate"

    def all(self) -> Iterator[Module]:
        """Yields it and all modules in it."""
        yield self
        for child in self.children.values():
            yield from child.all()


@dataclass(frozen=True)
class Reference:
    """One file refers to another of the same crate."""

    source: Path
    line: int
    target: Path


class MissingModule(Exception):
    """A declared module has no file."""


def read_crate(root: Path) -> Module:
    """Reads a crate from its `lib.rs` or `main.rs`."""
    module = Module("crate", root, None, root.parent)
    _read_file(module)
    return module


def references(root: Module) -> list[Reference]:
    """Returns all references between files of a crate."""
    found: dict[Reference, None] = {}
    for module in root.all():
        for path, line in _paths_that_count(module):
            target = _resolve(module, path, set())
            if target and target.file != module.file:
                found[Reference(module.file, line, target.file)] = None
    return list(found)


def _paths_that_count(module: Module) -> Iterator[tuple[list[str], int]]:
    is_facade = module.file.name in ("lib.rs", "main.rs", "mod.rs") or bool(module.children)
    for name, use in module.uses.items():
        # A module that only re-exports a name does not depend on its definition.
        is_used_here = module.names.get(name, 0) > 0
        if is_used_here or not (use.is_public and is_facade):
            yield use.path, use.line
    for use in module.globs:
        if not (use.is_public and is_facade):
            yield use.path, use.line
    yield from module.paths


# Resolving


def resolve(module: Module, path: list[str]) -> Module | None:
    """Returns the module that defines what a path in `module` names; None if it is not of this crate."""
    return _resolve(module, path, set())


def _resolve(module: Module, path: list[str], seen: set[tuple[str, str]]) -> Module | None:
    """Returns the module that defines what a path names; None if it is not of this crate."""
    first, rest = path[0], path[1:]
    if first == "":
        return None
    if first in ("crate", "$crate"):
        return _descend(module.root, rest, seen)
    if first == "self":
        return _descend(module, rest, seen)
    if first == "super":
        return _resolve(module.parent, ["self", *rest], seen) if module.parent else None
    if first in module.children or first in module.uses:
        return _descend(module, path, seen)
    found = _through_globs(module, first, seen)
    return _descend(found, rest, seen) if found else None


def _descend(module: Module, path: list[str], seen: set[tuple[str, str]]) -> Module | None:
    if not path:
        return module
    first, rest = path[0], path[1:]
    if first == "self":
        return _descend(module, rest, seen)
    if first == "super":
        return _descend(module.parent, rest, seen) if module.parent else None
    if first in module.children:
        return _descend(module.children[first], rest, seen)
    if (module.path, first) in seen:
        return module
    seen = seen | {(module.path, first)}
    if first in module.items:
        return module
    if first in module.uses:
        return _resolve_use(module, [*module.uses[first].path, *rest], seen)
    found = _through_globs(module, first, seen)
    if found and rest and first in found.children:
        return _descend(found.children[first], rest, seen)
    return found or module


def _resolve_use(module: Module, path: list[str], seen: set[tuple[str, str]]) -> Module | None:
    # `use name::x` names a child or a crate, but never the name that it declares itself.
    if path[0] in module.uses and path[0] not in module.children and (module.path, path[0]) in seen:
        return None
    return _resolve(module, path, seen)


def _through_globs(module: Module, name: str, seen: set[tuple[str, str]]) -> Module | None:
    for glob in module.globs:
        key = (module.path, "*" + "::".join(glob.path) + name)
        if key in seen:
            continue
        target = _resolve(module, glob.path, seen | {key})
        if target and (name in target.items or name in target.children):
            return target
        if target and (name in target.uses or target.globs):
            deeper = _descend(target, [name], seen | {key})
            if deeper is not target:
                return deeper
    return None


# Reading


def _read_file(module: Module) -> None:
    tokens, _ = split(module.file.read_text())
    _read_items(module, tokens)


def _read_items(module: Module, tokens: list[Token]) -> None:
    """Reads the tokens of a module: its items, and every path in them."""
    at, depth = 0, 0
    attributes: list[list[Token]] = []
    start_of_item = 0
    while at < len(tokens):
        token = tokens[at]
        if token.text == "#" and _text(tokens, at + 1) in ("[", "!"):
            opening = at + 1 if tokens[at + 1].text == "[" else at + 2
            end = _closing(tokens, opening)
            if tokens[at + 1].text == "[":
                attributes.append(tokens[opening + 1 : end])
            at = end + 1
            start_of_item = at
            continue
        if any(_is_for_tests(attribute) for attribute in attributes):
            at = _end_of_item(tokens, at, inside=depth > 0)
            attributes, start_of_item = [], at
            continue
        if token.text == "mod" and _is_name(tokens, at + 1) and _text(tokens, at + 2) in (";", "{"):
            is_public = _is_exported(tokens[start_of_item:at])
            at = _read_module(module, tokens, at, attributes, is_public)
            attributes, start_of_item = [], at
            continue
        if (
            token.text == "use"
            and token.is_name
            and (_is_name(tokens, at + 1) or _text(tokens, at + 1) in ("::", "{"))
        ):
            end = _find(tokens, at, ";")
            before = tokens[start_of_item:at]
            visible = (any(one.text == "pub" for one in before), _is_exported(before))
            _read_use(module, tokens[at + 1 : end], [], visible)
            at = end + 1
            attributes, start_of_item = [], at
            continue
        if depth == 0 and token.text in _ITEMS:
            name = at + 2 if _text(tokens, at + 1) in ("!", "mut") else at + 1
            if _is_name(tokens, name):
                module.items.add(tokens[name].text)
                if token.text in _TYPES and _is_exported(tokens[start_of_item:at]):
                    module.public_types.add(tokens[name].text)
        if token.text == "{":
            depth += 1
        elif token.text == "}":
            depth -= 1
        if token.text in ("{", "}", ";"):
            attributes, start_of_item = [], at + 1
        at = _read_path(module, tokens, at)


def _read_path(module: Module, tokens: list[Token], at: int) -> int:
    """Records the path that begins here, if there is one. Returns where to continue."""
    token = tokens[at]
    path: list[str] = []
    if token.text == "::" and not (at and (tokens[at - 1].is_name or tokens[at - 1].text == ">")):
        path, end = [""], at
    elif token.is_name and not (at and tokens[at - 1].text in (".", "'")):
        path, end = [token.text], at + 1
    else:
        return at + 1
    while _text(tokens, end) == "::" and _is_name(tokens, end + 1):
        path.append(tokens[end + 1].text)
        end += 2
    if len(path) > 1:
        module.paths.append((path, token.line))
    if path[0]:
        module.names[path[0]] = module.names.get(path[0], 0) + 1
    return max(end, at + 1)


def _is_exported(before: list[Token]) -> bool:
    """Whether the tokens before an item say `pub`, and not `pub(…)`."""
    return any(token.text == "pub" and _text(before, at + 1) != "(" for at, token in enumerate(before))


def _read_module(
    module: Module, tokens: list[Token], at: int, attributes: list[list[Token]], is_public: bool
) -> int:
    name = tokens[at + 1].text
    if tokens[at + 2].text == "{":
        end = _closing(tokens, at + 2)
        child = Module(name, module.file, module, module.folder / name, is_public=is_public)
        module.children[name] = child
        _read_items(child, tokens[at + 3 : end])
        return end + 1
    path = _path_attribute(module, attributes)
    places = [path] if path else [module.folder / f"{name}.rs", module.folder / name / "mod.rs"]
    file = next((place for place in places if place.exists()), None)
    if file is None:
        raise MissingModule(f"{module.file}:{tokens[at].line}: no file for `mod {name}`")
    folder = file.parent if path or file.name == "mod.rs" else module.folder / name
    module.children[name] = Module(name, file, module, folder, is_public=is_public)
    _read_file(module.children[name])
    return at + 3


def _path_attribute(module: Module, attributes: list[list[Token]]) -> Path | None:
    """Returns the file that `#[path = "…"]` names."""
    for attribute in attributes:
        if [token.text for token in attribute[:2]] == ["path", "="]:
            return (module.file.parent / attribute[2].text.strip('"')).resolve()
    return None


def _read_use(module: Module, tokens: list[Token], prefix: list[str], visible: tuple[bool, bool]) -> None:
    """Reads a tree of names: `a::{self, b::c as d, e::*}`. `visible`: see :class:`Use`."""
    path = list(prefix)
    at = 0
    line = tokens[0].line if tokens else 0
    while at < len(tokens):
        token = tokens[at]
        if token.text == "::":
            if at == 0 and not prefix:
                path.append("")
        elif token.text == "{":
            end = _closing(tokens, at)
            for branch in _split_at_commas(tokens[at + 1 : end]):
                _read_use(module, branch, path, visible)
            return
        elif token.text == "*":
            module.globs.append(Use(path, *visible, token.line))
            return
        elif token.text == "as":
            alias = tokens[at + 1].text
            # `as _` brings a trait in without a name.
            name = f"{path[-1]} as _" if alias == "_" else alias
            module.uses[name] = Use(path, *visible, line)
            return
        elif not (token.text == "self" and path):
            path.append(token.text)
        at += 1
    if path:
        module.uses[path[-1]] = Use(path, *visible, line)


def _split_at_commas(tokens: list[Token]) -> list[list[Token]]:
    branches: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text == "{") - (token.text == "}")
        if token.text == "," and depth == 0:
            branches.append([])
        else:
            branches[-1].append(token)
    return [branch for branch in branches if branch]


def _is_for_tests(attribute: list[Token]) -> bool:
    """Whether it is `cfg(test)`, or `cfg(all(test, …))`, or `test`."""
    words = [token.text for token in attribute]
    return (
        words == ["test"]
        or words[:4] == ["cfg", "(", "test", ")"]
        or words[:5] == ["cfg", "(", "all", "(", "test"]
    )


def _end_of_item(tokens: list[Token], at: int, inside: bool) -> int:
    """Returns the end of the item that begins here. Inside of another item, it may be a field or a variant."""
    while at < len(tokens):
        text = tokens[at].text
        if text == ";" or (inside and text == ","):
            return at + 1
        if text == "}":
            return at
        if text in _OPEN:
            at = _closing(tokens, at)
            if text == "{":
                return at + 1
        at += 1
    return at


def _closing(tokens: list[Token], at: int) -> int:
    """Returns where the bracket at a place is closed."""
    opening, closing = tokens[at].text, _OPEN[tokens[at].text]
    depth = 0
    for place in range(at, len(tokens)):
        depth += (tokens[place].text == opening) - (tokens[place].text == closing)
        if depth == 0:
            return place
    return len(tokens)


def _find(tokens: list[Token], at: int, text: str) -> int:
    return next((place for place in range(at, len(tokens)) if tokens[place].text == text), len(tokens))


def _text(tokens: list[Token], at: int) -> str:
    return tokens[at].text if at < len(tokens) else ""


def _is_name(tokens: list[Token], at: int) -> bool:
    return at < len(tokens) and tokens[at].is_name
