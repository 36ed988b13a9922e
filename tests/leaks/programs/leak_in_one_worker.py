"""Four workers are forked; in one of them, a debug switch keeps every request."""

import os

from pacing import rounds

KEPT = []


def handle(worker, number):
    request = {"worker": worker, "number": number, "body": "x" * (200 + number % 50)}  # LEAK
    if worker == 2:
        KEPT.append(request)  # LEAK
    return len([str(k) for k in range(40)])


def serve(worker):
    for number in rounds(16000):
        handle(worker, number)


children = []
for worker in range(4):
    pid = os.fork()
    if pid == 0:
        serve(worker)
        raise SystemExit(0)
    children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
