"""Small and large blocks, a child, and what the system says of a large one."""

import os
import sys

kept = [bytes(1000) for _ in range(20_000)]
large = bytearray(int(sys.argv[1]) << 20)
large[:: 16 << 20] = b"x" * len(large[:: 16 << 20])
child = os.fork()
if child == 0:
    more = [str(number) for number in range(20_000)]
    os._exit(len(more) % 256)
print(len(kept), len(large), sum(large[:: 16 << 20]), os.waitpid(child, 0)[1])
