"""Turns a long Markdown document into HTML."""

import markdown
from corpus import pyperformance_data

sources = sorted((pyperformance_data("docutils") / "docs" / "user").rglob("*.txt")) * 60
text = "\n\n".join(source.read_text(encoding="utf-8") for source in sources)
page = markdown.markdown(text, extensions=["extra", "toc", "sane_lists", "admonition"])
print(f"markdown: {len(text)} characters in, {len(page)} out")
