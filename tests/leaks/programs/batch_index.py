"""An index of words is built from made-up texts, and asked."""

import random


class Index:
    def __init__(self):
        self.places = {}

    def add(self, number, text):
        for at, word in enumerate(text.split()):
            self.places.setdefault(word, []).append((number, at))


def texts():
    chance = random.Random(1)
    words = [f"word{number}" for number in range(8000)]
    for _ in range(9000):
        yield " ".join(chance.choice(words) for _ in range(150))


def build():
    index = Index()
    for number, text in enumerate(texts()):
        index.add(number, text)
    return index


index = build()
print(max(len(places) for places in index.places.values()))
