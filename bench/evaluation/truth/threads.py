"""Four threads of different rates; each keeps what it made."""

import threading

from kinds import kinds, work

# Before there are threads, so that not several of them make the functions.
kinds()
kept: list[list[object]] = [[] for _ in range(4)]


def run(number: int) -> None:
    """The work of one thread."""
    for turn in range(6):
        work(1.5 * 2**number, kept[number], turn + number)


threads = [threading.Thread(target=run, args=(number,), name=f"worker-{number}") for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(f"threads: {[len(each) for each in kept]}")
