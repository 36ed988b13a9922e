"""Each answer is built in a buffer that grows, and is dropped; a request log is flushed when it is full."""

from pacing import rounds

LOG = []


def answer(number):
    buffer = bytearray()
    for k in range(40 + number % 30):
        buffer.extend(b"%08d" % k * 200)
    return len(buffer)


def handle(number):
    LOG.extend([number] * 50)
    if len(LOG) > 60000:
        LOG.clear()
    return answer(number)


for number in rounds(6000):
    handle(number)
