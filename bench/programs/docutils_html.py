"""Turns the specification of reStructuredText and other long documents into HTML."""

from corpus import pyperformance_data
from docutils import core

FOLDER = pyperformance_data("docutils") / "docs"
size = 0
for name in (
    "ref/rst/restructuredtext.txt",
    "ref/rst/directives.txt",
    "dev/rst/alternatives.txt",
    "dev/todo.txt",
    "ref/doctree.txt",
):
    source = FOLDER / name
    settings = {
        "report_level": 5,
        "halt_level": 5,
        "input_encoding": "utf-8",
        "file_insertion_enabled": False,
    }
    html = core.publish_string(
        source.read_text(encoding="utf-8"),
        source_path=str(source),
        writer="html",
        settings_overrides=settings,
    )
    size += len(html)
print(f"docutils: {size} bytes of HTML")
