"""Three workers of a server are forked, and each of them leaks at the same line."""

import os

from pacing import rounds

SEEN = {}


def handle(number):
    SEEN[f"request {number}"] = bytes(600)  # LEAK
    return len([str(k) for k in range(40)])


def serve():
    for number in rounds(8000):
        handle(number)


children = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        serve()
        raise SystemExit(0)
    children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
