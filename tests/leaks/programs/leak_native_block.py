"""A block of C that only grows, as the array of an extension does, beside some work."""

import ctypes

from pacing import rounds

C = ctypes.CDLL(None)
C.realloc.restype = ctypes.c_void_p
C.realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
BLOCK = None
ROOM = 0
HELD = 0


def record(size):
    global BLOCK, ROOM, HELD
    if HELD + size > ROOM:
        ROOM = (HELD + size) * 9 // 8
        BLOCK = C.realloc(BLOCK, ROOM)  # LEAK
        ctypes.memset(BLOCK + HELD, 1, ROOM - HELD)
    HELD += size


def handle(number):
    record(1040)  # LEAK
    return len([str(k) for k in range(100)])


for number in rounds(6000):
    handle(number)
