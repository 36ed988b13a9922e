"""A pool's threads collect in a thread-local list what they have done."""

import threading
from concurrent.futures import ThreadPoolExecutor

from pacing import rounds

LOCAL = threading.local()


def job(number):
    if not hasattr(LOCAL, "history"):
        LOCAL.history = []
    result = {"number": number, "squares": [k * k for k in range(number % 50)]}  # LEAK
    LOCAL.history.append(result)  # LEAK
    return len([str(k) for k in range(50)])


with ThreadPoolExecutor(3) as pool:
    for number in rounds(300):
        start = number * 40
        list(pool.map(job, range(start, start + 40)))  # LEAK
