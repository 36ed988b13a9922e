"""Highlights modules of the standard library with Pygments."""

from corpus import standard_library
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

size = 0
for source in standard_library(
    "argparse.py",
    "typing.py",
    "inspect.py",
    "tarfile.py",
    "doctest.py",
    "decimal.py",
    "_pydecimal.py",
    "turtle.py",
    "ipaddress.py",
):
    size += len(highlight(source, PythonLexer(), HtmlFormatter(linenos="table")))
print(f"pygments: {size} characters")
