"""Parses modules of the standard library with astroid and infers the values of names."""

import contextlib

import astroid
from corpus import standard_library

inferred = 0
for source in standard_library("argparse.py", "difflib.py"):
    module = astroid.parse(source)
    for node in module.nodes_of_class((astroid.nodes.Call, astroid.nodes.Attribute)):
        with contextlib.suppress(astroid.InferenceError, RecursionError):
            inferred += sum(1 for _ in node.infer())
print(f"astroid: {inferred} values")
