"""Parses the specification of HTML 5 with html5lib, and serialises it."""

import html5lib
from corpus import pyperformance_data

page = (pyperformance_data("html5lib") / "w3_tr_html5.html").read_bytes()
size = 0
for tree in ("etree", "dom") * 5:
    document = html5lib.parse(page, treebuilder=tree, transport_encoding="utf-8")
    size += len(html5lib.serialize(document, tree=tree))
print(f"html5lib: {size} characters")
