"""The pool, in a program that records itself."""

import multiprocessing
import sys

import pool

if __name__ == "__main__":
    multiprocessing.freeze_support()
    import nthbyte

    nthbyte.start("out.nthb")
    for method in sys.argv[1:] or ["fork", "spawn", "forkserver"]:
        with multiprocessing.get_context(method).Pool(2) as workers:
            print(method, workers.map(pool.work, [5_000, 10_000, 15_000]))
            workers.close()
            workers.join()
    print(pool.work(20_000))
    nthbyte.stop()
