"""A public name of a type means one thing in the workspace.

Public is what another crate can name: what `lib.rs` declares or passes on as `pub`, and so on downwards. A `pub` name
in a module that nobody outside sees does not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from structure.rust import Module, read_crate, resolve


def check(root: Path, rules: dict[str, Any]) -> Iterator[str]:
    """Yields a line for each violation."""
    places: dict[str, set[Path]] = defaultdict(set)
    for library in sorted(root.glob("crates/*/src/lib.rs")):
        for name, file in public_types(read_crate(library)):
            places[name].add(file.relative_to(root))
    reasons = dict(rules.get("names", {}))
    for name, files in sorted(places.items()):
        if len(files) > 1 and not reasons.pop(name, None):
            yield f"`{name}` is public in {', '.join(sorted(map(str, files)))}: each name means one thing"
    for name in reasons:
        yield f"rules.toml: `{name}` is not public in several places"


def public_types(crate: Module) -> set[tuple[str, Path]]:
    """Returns the types that other crates can name, each with the file that defines it."""
    found: set[tuple[str, Path]] = set()
    seen: set[str] = set()

    def visit(module: Module) -> None:
        if module.path in seen:
            return
        seen.add(module.path)
        found.update((name, module.file) for name in module.public_types)
        for child in module.children.values():
            if child.is_public:
                visit(child)
        for use in module.uses.values():
            target = resolve(module, use.path) if use.is_exported else None
            if target and use.path[-1] in target.public_types:
                found.add((use.path[-1], target.file))
            elif target and target.name == use.path[-1]:
                visit(target)
        for use in module.globs:
            target = resolve(module, use.path) if use.is_exported else None
            if target:
                visit(target)

    visit(crate)
    return found
