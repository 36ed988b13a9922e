"""Some 50 bytes of every request are kept, among 200 kB that are not."""

from pacing import rounds

SEEN = []


def handle(number):
    chunks = [bytes(2000) for _ in range(100)]
    SEEN.append(number * 1000003)  # LEAK
    return len(chunks)


def remember(number):
    return number


for number in rounds(16000):
    handle(number)
