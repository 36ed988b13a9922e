"""Allocates objects of 16 bytes in a tight loop: the program of PyPy's "How fast can the RPython GC allocate?".

RPython: translated with Python 2.7. ``./allocate_alot LOOPS`` prints the time of the loop, and its rate.
"""

import time


class A(object):
    pass


def run(loops):
    # Two objects are alive at a time: otherwise the translator would remove the allocation.
    a = prev = None
    for i in range(loops):
        prev = a
        a = A()
        a.i = i
    return prev, a


def main(argv):
    loops = int(argv[1])
    before = time.time()
    prev, a = run(loops)
    seconds = time.time() - before
    print(prev, a)
    print("%f s" % seconds)
    print("%f GB/s" % (loops * 16 / seconds / 1024.0 / 1024.0 / 1024.0))
    return 0


def target(*args):
    return main
