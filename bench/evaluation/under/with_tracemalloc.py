"""Runs a script under tracemalloc, and lists the functions whose blocks are alive at its end.

with_tracemalloc.py FOLDER SCRIPT FRAMES
"""

import json
import os
import runpy
import sys
import tracemalloc

folder, script, frames = sys.argv[1:]
sys.argv = [script]
sys.path[0] = os.path.dirname(script)
tracemalloc.start(int(frames))
try:
    runpy.run_path(script, run_name="__main__")
finally:
    snapshot = tracemalloc.take_snapshot()
    tracemalloc.stop()
    lines = [
        (statistic.traceback[0].filename, statistic.traceback[0].lineno, statistic.size)
        for statistic in snapshot.statistics("lineno")
    ]
    snapshot.dump(os.path.join(folder, "snapshot.bin"))
    with open(os.path.join(folder, "lines.json"), "w") as file:
        json.dump(lines, file)
