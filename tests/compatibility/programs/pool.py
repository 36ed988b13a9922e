"""A pool of processes, started by each of the methods that the arguments name."""

import json
import multiprocessing
import sys


def work(number: int) -> int:
    """Returns the length of so many rows as JSON."""
    return sum(len(json.dumps({"row": row, "text": str(row) * 3})) for row in range(number))


if __name__ == "__main__":
    multiprocessing.freeze_support()
    for method in sys.argv[1:] or ["fork", "spawn", "forkserver"]:
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, pool.map(work, [5_000, 10_000, 15_000]))
            pool.close()
            pool.join()
    print(work(20_000))
