"""Measures one program in one process, after a warm-up: ``inside.py PROGRAM [SHARE WARM-UPS]``; one run for each line of
standard input. SHARE of the program's work is 1 by default, and there are three warm-ups.

A line is a JSON object: ``setting`` has the arguments of ``nthbyte.start``, or is null for a plain run, and
``ballast`` is the number of bytes that live beside the run. Prints a JSON object for each: seconds of CPU of the
program's thread (``cpu``) and of the whole process with the writer thread, samples, bytes allocated, bytes of the profile.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import sys
import tempfile
import time

from allocating import PROGRAMS

import nthbyte


def measure(program, folder, setting=None, ballast=0):
    """Runs the program once with a setting, while this many other bytes are live."""
    path = os.path.join(folder, "out.nthb")
    if setting is not None:
        nthbyte.start(path, force=True, **setting)
    beside = bytearray(ballast)
    # Garbage of earlier runs is collected here, not during this run.
    gc.collect()
    thread, process = time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID), time.process_time()
    program()
    thread = time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID) - thread
    process = time.process_time() - process
    del beside
    result = nthbyte.stop() if setting is not None else None
    return {
        "cpu": thread,
        "process": process,
        "samples": result.samples if result else 0,
        "lost": result.lost if result else 0,
        "allocated": result.bytes_allocated if result else None,
        "size": os.path.getsize(path) if result else 0,
    }


def main():
    """Answers each line."""
    name, share, warm_ups = sys.argv[1:] if len(sys.argv) > 2 else (sys.argv[1], 1, 3)
    program = functools.partial(PROGRAMS[name], float(share))
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(int(warm_ups)):
            measure(program, folder)
        for line in sys.stdin:
            print(json.dumps(measure(program, folder, **json.loads(line))), flush=True)


main()
