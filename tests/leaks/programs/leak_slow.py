"""Some 50 bytes of every request are kept, among 200 kB that are not."""

SEEN = []


def handle(number):
    chunks = [bytes(2000) for _ in range(100)]
    SEEN.append(number * 1000003)  # LEAK
    return len(chunks)


def remember(number):
    return number


for number in range(16000):
    handle(number)
