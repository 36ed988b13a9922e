"""Pickles and unpickles with the standard library's Python code: pyperformance's `pickle_pure_python`."""

import pickle
import types

from corpus import pyperformance

benchmark = pyperformance("pickle")
python = types.SimpleNamespace(dumps=pickle._dumps, loads=pickle._loads)
options = types.SimpleNamespace(protocol=pickle.HIGHEST_PROTOCOL)
benchmark.bench_pickle(100, python, options)
benchmark.bench_unpickle(150, python, options)
print("pickle: done")
