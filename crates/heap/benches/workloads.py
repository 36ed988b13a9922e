"""Programs that allocate in different ways, for `measure.py`. Each runs a few seconds at most."""

from __future__ import annotations

import sys
from typing import Callable


def json_documents() -> None:
    import json

    document = [{"id": i, "tags": [str(i)] * 3, "score": float(i)} for i in range(20_000)]
    for _ in range(12):
        json.loads(json.dumps(document))


def pickles() -> None:
    import copy
    import pickle

    value = {str(i): (i, float(i), [i] * 5, {"k": i}) for i in range(30_000)}
    for _ in range(6):
        pickle.loads(pickle.dumps(value))
        copy.deepcopy({k: value[k] for k in list(value)[:4000]})


def rst_document() -> None:
    import docutils.core

    paragraph = "Some *emphasis*, a `link <http://example.org>`_ and ``code`` in a line.\n" * 8
    text = "".join(f"Chapter {i}\n==========\n\n{paragraph}\n* one\n* two\n\n" for i in range(60))
    docutils.core.publish_string(text, writer="html", settings_overrides={"report_level": 5})


def sql_queries() -> None:
    import sqlglot

    query = "SELECT a.x, SUM(b.y) AS s FROM t AS a JOIN u AS b ON a.id = b.id WHERE a.z > 10 AND b.w IN (1, 2, 3) GROUP BY a.x ORDER BY s DESC LIMIT 10"
    for _ in range(400):
        sqlglot.transpile(query, read="mysql", write="duckdb")


def algebra() -> None:
    import sympy

    x, y, z = sympy.symbols("x y z")
    for n in range(5, 9):
        sympy.expand((x + y + 2 * z + 1) ** n)
    sympy.integrate(sympy.exp(x) * sympy.sin(x) * x**2, x)


def templates() -> None:
    import jinja2

    source = "{% for r in rows %}<tr>{% for c in r %}<td>{{ c|e }}</td>{% endfor %}</tr>{% endfor %}"
    template = jinja2.Template(source)
    rows = [[f"<{i}>", i, i * 2, str(i) * 2] for i in range(2000)]
    for _ in range(25):
        template.render(rows=rows)


def graphs() -> None:
    import networkx

    graph = networkx.gnp_random_graph(500, 0.03, seed=1)
    for _ in range(2):
        networkx.betweenness_centrality(graph, k=100, seed=1)
        list(networkx.connected_components(graph))


def html_soup() -> None:
    import bs4

    row = "<tr><td class='a'>text</td><td><a href='x'>link</a><b>bold</b></td></tr>"
    page = "<html><body><table>" + row * 1500 + "</table></body></html>"
    for _ in range(2):
        soup = bs4.BeautifulSoup(page, "html.parser")
        [a.get_text() for a in soup.find_all("a")]


def trees() -> None:
    def make(depth: int) -> tuple[object, object] | None:
        return (make(depth - 1), make(depth - 1)) if depth else None

    def check(tree: tuple[object, object] | None) -> int:
        return 1 if tree is None else check(tree[0]) + check(tree[1]) + 1  # type: ignore[arg-type]

    for _ in range(6):
        check(make(16))


def strings() -> None:
    for _ in range(8):
        words = [f"word{i}" for i in range(60_000)]
        text = " ".join(words)
        counts: dict[str, int] = {}
        for word in text.split():
            key = word[:6].upper()
            counts[key] = counts.get(key, 0) + 1
        sorted(counts.items(), key=lambda item: (-item[1], item[0]))


class Point:
    def __init__(self, x: float, y: float, z: float) -> None:
        self.x, self.y, self.z = x, y, z

    def plus(self, other: Point) -> Point:
        return Point(self.x + other.x, self.y + other.y, self.z + other.z)


def objects() -> None:
    points = [Point(float(i), i * 0.5, 1.0) for i in range(60_000)]
    for _ in range(8):
        points = [p.plus(q) for p, q in zip(points, reversed(points))]


def churn() -> None:
    import random

    random.seed(3)
    live = [bytes(random.randrange(600)) for _ in range(60_000)]
    for _ in range(700_000):
        live[random.randrange(60_000)] = bytes(random.randrange(600))


class Position:
    """A point of `points`."""

    def __init__(self, i: int) -> None:
        self.x, self.y, self.z = float(i), i * 0.5, i * 0.25

    def normalize(self) -> None:
        length = (self.x**2 + self.y**2 + self.z**2) ** 0.5 or 1.0
        self.x, self.y, self.z = self.x / length, self.y / length, self.z / length


def points() -> None:
    """Builds and drops 30 MB of objects again and again, as pyperformance's float does."""
    for _ in range(8):
        cloud = [Position(i) for i in range(100_000)]
        for point in cloud:
            point.normalize()
        del cloud, point


def objects_then_lists() -> None:
    """Drops many small objects, then builds large lists, as pyperformance's pyflate does."""
    for _ in range(3):
        small = [(i, float(i)) for i in range(200_000)]
        del small
        large = [[None] * 100_000 for _ in range(40)]
        del large


def integers() -> None:
    total = 0
    for i in range(4_000_000):
        total += i * 3 + 100_000
    sys.set_int_max_str_digits(100_000)
    digits = str(3**60_000)
    assert len(digits) > 20_000


def compile_code() -> None:
    import ast

    source = open(ast.__file__, encoding="utf-8").read()
    for _ in range(8):
        compile(ast.parse(source), "ast.py", "exec")


def startup() -> None:
    import argparse
    import asyncio
    import email.message
    import http.client
    import unittest

    assert argparse and asyncio and email and http and unittest


def growth(mebibytes: int) -> Callable[[], None]:
    """Builds and drops small objects of so many MiB: to see from where huge pages pay."""

    def grow() -> None:
        count = (mebibytes << 20) // (56 + 32 + 56)
        for _ in range(max(1, 200 // mebibytes)):
            pairs = [(i, float(i)) for i in range(count)]
            sum(pair[0] for pair in pairs)
            sum(pair[0] for pair in reversed(pairs))

    grow.__name__ = f"grow_{mebibytes}"
    return grow


WORKLOADS: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        json_documents, pickles, rst_document, sql_queries, algebra, templates, graphs, html_soup,
        trees, strings, objects, churn, points,
        objects_then_lists, integers, compile_code, startup,
    )
}
GROWTH: dict[str, Callable[[], None]] = {f"grow_{n}": growth(n) for n in (8, 16, 32, 64, 200)}

if __name__ == "__main__":
    (WORKLOADS | GROWTH)[sys.argv[1]]()
