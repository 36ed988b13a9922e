"""Trains and uses a tokeniser of byte pairs, whose lists live long: pyperformance's `bpe_tokeniser`, on a part of its text."""

from corpus import pyperformance, pyperformance_data

text = (pyperformance_data("bpe_tokeniser") / "frankenstein_intro.txt").read_text(encoding="utf-8")
pyperformance("bpe_tokeniser").train(text[: len(text) // 2])
print(f"bpe: {len(text) // 2} characters")
