"""What version-1.nthb is a recording of, on CPython 3.11."""

import ctypes
import threading

import nthbyte

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p


class Node:
    def __init__(self, number):
        self.name = "n" * 200 + str(number)


def nodes():
    return [Node(number) for number in range(100)]


def blobs():
    return [b"b" * 3000 + b"%d" % number for number in range(20)]


def freed():
    for number in range(50):
        "f" * (1000 + number)


def blocks():
    return [libc.malloc(5000) for _ in range(30)]


with nthbyte.Profiler("version-1.nthb", every=1, native=True, holders=True):
    with nthbyte.label(part="first"):
        kept = nodes()
    thread = threading.Thread(target=lambda: kept.append(blobs()), name="worker")
    thread.start()
    thread.join()
    freed()
    kept.append(blocks())
