"""A package is formatted."""

from pathlib import Path

import black
import click

for path in sorted(Path(click.__file__).parent.rglob("*.py")):
    try:
        black.format_file_contents(path.read_text(), fast=False, mode=black.Mode(line_length=70))
    except black.NothingChanged:
        pass
