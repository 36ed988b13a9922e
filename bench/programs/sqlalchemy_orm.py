"""Inserts and reads objects of an ORM, in a data base in memory: pyperformance's `sqlalchemy_declarative`."""

import warnings

from corpus import pyperformance

warnings.simplefilter("ignore")
pyperformance("sqlalchemy_declarative").bench_sqlalchemy(4, 100)
print("sqlalchemy: done")
