"""Callbacks for later hold what they were made with."""

from pacing import rounds

PENDING = []


def schedule(request):
    body = bytes(400) + request  # LEAK

    def retry():
        return len(body)

    PENDING.append(retry)  # LEAK
    return retry  # LEAK


def work(number):
    return sorted(str(k * number % 997) for k in range(60))


for number in rounds(12000):
    work(number)
    schedule(b"%d" % number)
