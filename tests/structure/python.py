"""The modules of python/nthbyte import each other from top to bottom."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PACKAGE = "nthbyte"


def check(root: Path, rules: dict[str, Any]) -> Iterator[str]:
    """Yields a line for each violation."""
    layers: list[list[str]] = rules["python"]["layers"]
    late: dict[str, str] = rules["python"].get("late", {})
    level = {name: number for number, names in enumerate(layers) for name in names}
    folder = root / "python" / PACKAGE
    there = {_name(folder, path): path for path in sorted(folder.rglob("*.py"))}
    for name in sorted(level.keys() - there.keys()):
        yield f"rules.toml: there is no python/{PACKAGE}/{name}.py"
    used: set[str] = set()
    for name, path in there.items():
        if name not in level:
            yield f"{path.relative_to(root)}: rules.toml does not say in which layer it is"
            continue
        for imported, line, is_late in imports(path.read_text(), set(there)):
            if imported == name or imported not in level or level[imported] > level[name]:
                continue
            edge = f"{name} -> {imported}"
            if is_late and edge in late:
                used.add(edge)
                continue
            yield f"{path.relative_to(root)}:{line}: `{name}` may not import `{imported}`, which is not below it"
    for edge in sorted(late.keys() - used):
        yield f"rules.toml: `{edge}` is not needed any more"


def imports(source: str, modules: set[str]) -> list[tuple[str, int, bool]]:
    """Returns the modules of the package that a file imports, with the line, and whether in a function.

    Imports for type checkers only are left out.
    """
    found: list[tuple[str, int, bool]] = []

    def visit(node: ast.AST, is_late: bool) -> None:
        if isinstance(node, ast.If) and _is_for_type_checkers(node.test):
            for child in node.orelse:
                visit(child, is_late)
            return
        if isinstance(node, ast.Import):
            for alias in node.names:
                found.extend((name, node.lineno, is_late) for name in _named(alias.name, [], modules))
        elif isinstance(node, ast.ImportFrom):
            base = f"{PACKAGE}.{node.module or ''}".rstrip(".") if node.level else node.module or ""
            names = [alias.name for alias in node.names]
            found.extend((name, node.lineno, is_late) for name in _named(base, names, modules))
        is_late = is_late or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            visit(child, is_late)

    visit(ast.parse(source), False)
    return found


def _named(base: str, names: list[str], modules: set[str]) -> list[str]:
    """Returns the modules that `from base import names` or `import base` leads to."""
    if base == PACKAGE:
        inner = [name for name in names if name in modules]
        return inner if inner and len(inner) == len(names) else [*inner, "__init__"]
    if base.startswith(f"{PACKAGE}."):
        return [base.removeprefix(f"{PACKAGE}.")]
    return []


def _is_for_type_checkers(test: ast.expr) -> bool:
    return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _name(folder: Path, path: Path) -> str:
    return ".".join(path.relative_to(folder).with_suffix("").parts)
