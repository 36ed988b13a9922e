"""Writes docs/api.md from the docstrings of the package, and docs/command.md from the command's own help.

`make docs-outputs` writes both. With ``--check`` it compares and writes nothing.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "nthbyte"
_MADE = "<!-- Made by site/reference.py from {}. -->"

API = """# The Python API

{made}

What `import nthbyte` offers. The options mean the same as [`nthbyte run`](run.md)'s. A `Path` is a
`str`, `bytes` or `os.PathLike`. A `Size` is a number of bytes, or a text such as `"512KiB"`.

```python
import nthbyte

with nthbyte.Profiler("out.nthb", every="64KiB") as profiler:
    work()
print(profiler.result.samples)
```

"""

COMMAND = """# All commands

{made}

Each command prints this text with `--help`. The pages beside this one explain them with examples.

"""


def api() -> str:
    """Returns the page of the Python API."""
    homes = _homes()
    # What one calls stands before what one gets.
    names = sorted(
        (name for name in homes if not name.startswith("_")), key=lambda name: homes[name], reverse=True
    )
    parts = [_documented(name, PACKAGE / f"{homes[name]}.py") for name in names]
    return API.format(made=_MADE.format("the docstrings")) + "\n".join(parts)


def _homes() -> dict[str, str]:
    """Returns the public names, each with the module that defines it."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    return {
        alias.name: node.module.removeprefix("nthbyte.")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def _documented(name: str, module: Path) -> str:
    # Names made at run time are defined for type checkers.
    nodes = ast.walk(ast.parse(module.read_text()))
    node = next(node for node in nodes if getattr(node, "name", None) == name)
    if isinstance(node, ast.FunctionDef):
        return f"## `nthbyte.{name}`\n\n{_signature(name, node, skip=0)}\n{_prose(node)}"
    assert isinstance(node, ast.ClassDef)
    begin = next(
        (one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None
    )
    text = f"## `nthbyte.{name}`\n\n"
    attributes = _attributes(begin) if begin else []
    if begin and not attributes:
        text += _signature(name, begin, skip=1) + "\n"
    elif node.bases:
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        text += f"```python\nclass {name}({bases})\n```\n\n"
    text += _prose(node)
    if attributes:
        text += "\n| attribute | type | |\n|---|---|---|\n" + "".join(attributes)
    return text


def _signature(name: str, function: ast.FunctionDef, skip: int) -> str:
    arguments = function.args
    words = [ast.unparse(argument) for argument in arguments.args[skip:]]
    if arguments.kwonlyargs:
        words.append("*")
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults):
        value = "" if default is None else f" = {ast.unparse(default)}".replace("'", '"')
        words.append(f"{ast.unparse(argument)}{value}")
    if arguments.kwarg:
        words.append(f"**{ast.unparse(arguments.kwarg)}")
    result = f" -> {ast.unparse(function.returns)}" if function.returns and not skip else ""
    listed = "".join(f"    {word},\n" for word in words)
    inside = f"\n{listed}" if words else ""
    return f"```python\nnthbyte.{name}({inside}){result}\n```\n"


def _attributes(begin: ast.FunctionDef) -> list[str]:
    """Returns a row for each attribute that has a docstring below its assignment."""
    types = {
        argument.arg: ast.unparse(argument.annotation) for argument in begin.args.args if argument.annotation
    }
    rows = []
    for assignment, text in zip(begin.body, begin.body[1:]):
        target = assignment.targets[0] if isinstance(assignment, ast.Assign) else None
        if isinstance(target, ast.Attribute) and isinstance(text, ast.Expr):
            assert isinstance(text.value, ast.Constant)
            kind = types[target.attr].replace("|", "\\|")
            rows.append(f"| `{target.attr}` | `{kind}` | {_markdown(str(text.value.value))} |\n")
    return rows


def _prose(node: ast.FunctionDef | ast.ClassDef) -> str:
    """Returns a docstring as Markdown; lines such as `every: …`, with the lines indented below them, become a list."""
    text = _markdown(ast.get_docstring(node) or "")
    text = re.sub(r"\n {4,}", " ", text)
    return re.sub(r"^(\w+): ", r"- `\1`: ", text, flags=re.MULTILINE) + "\n"


def _markdown(text: str) -> str:
    text = re.sub(r":func:`(\w+)`", r"[`\1`](#nthbyte\1)", text)
    return re.sub(r"``(.+?)``", r"`\1`", text)


def command() -> str:
    """Returns the page of the command's help."""
    program = str(Path(sys.executable).parent / "nthbyte")
    overview = _help([program])
    listed = overview.partition("Commands:\n")[2].partition("\n\n")[0]
    names = re.findall(r"^  (\w+)", listed, re.MULTILINE)
    parts = [_section("nthbyte", overview)]
    parts += [_section(f"nthbyte {name}", _help([program, name])) for name in names]
    return COMMAND.format(made=_MADE.format("`--help`")) + "\n".join(parts)


def _help(words: list[str]) -> str:
    environment = {**os.environ, "COLUMNS": "92", "NO_COLOR": "1"}
    done = subprocess.run([*words, "--help"], env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return "\n".join(line.rstrip() for line in done.stdout.strip().split("\n"))


def _section(title: str, text: str) -> str:
    return f"## `{title}`\n\n```text\n{text}\n```\n"


def _form(text: str) -> str:
    """Returns a text without what differs between versions of argparse."""
    return re.sub(r"(-\w) \S+, (--\S+ \S+)", r"\1, \2", " ".join(text.split()))


PAGES: dict[str, Callable[[], str]] = {"api": api, "command": command}


def main() -> int:
    """Reads the command line and returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="api, command (default: both)")
    parser.add_argument("--check", action="store_true", help="write nothing, and compare")
    arguments = parser.parse_args()
    old = []
    for name in arguments.pages or PAGES:
        path = ROOT / "docs" / f"{name}.md"
        text = PAGES[name]()
        if not arguments.check:
            path.write_text(text)
        elif not path.exists() or _form(path.read_text()) != _form(text):
            old.append(f"docs/{name}.md is out of date: `make docs-outputs` writes it")
    print("\n".join(old) or "the reference is up to date", file=sys.stderr if old else sys.stdout)
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
