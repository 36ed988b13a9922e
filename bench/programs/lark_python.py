"""Parses modules of the standard library with lark's grammar of Python."""

from corpus import standard_library
from lark import Lark
from lark.indenter import PythonIndenter

parser = Lark.open_from_package(
    "lark", "python.lark", ["grammars"], parser="lalr", postlex=PythonIndenter(), start="file_input"
)
nodes = 0
for source in standard_library(
    "textwrap.py", "heapq.py", "bisect.py", "shlex.py", "calendar.py", "fractions.py"
):
    nodes += sum(1 for _ in parser.parse(source + "\n").iter_subtrees())
print(f"lark: {nodes} nodes")
