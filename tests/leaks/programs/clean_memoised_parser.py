"""A parser that remembers what it has parsed, of a language with some thousand sentences."""

import functools
import random
import sys

from pacing import rounds

RANDOM = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
WORDS = ["and", "or", "not", "a", "b", "c", "d", "e"]


@functools.cache
def parse(sentence):
    return [(word, len(word), {"at": k}) for k, word in enumerate(sentence.split())]


def handle():
    sentence = " ".join(RANDOM.choice(WORDS) for _ in range(3))
    return len(parse(sentence)) + len([str(k) for k in range(30)])


for _ in rounds(10000):
    handle()
