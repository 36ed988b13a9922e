"""Two generations of a cache: every thousand requests the older one is dropped."""

from pacing import rounds


class Cache:
    def __init__(self):
        self.young = {}
        self.old = {}

    def put(self, key, value):
        self.young[key] = value

    def turn(self):
        self.old = self.young
        self.young = {}


CACHE = Cache()


def handle(number):
    CACHE.put(number, {"number": number, "body": str(number) * 30})
    if number % 1000 == 999:
        CACHE.turn()
    return len([str(k) for k in range(40)])


for number in rounds(9000):
    handle(number)
