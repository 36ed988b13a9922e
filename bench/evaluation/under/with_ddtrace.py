"""Runs a script under ddtrace's heap profiler alone, with pprof files in a folder: with_ddtrace.py FOLDER SCRIPT"""

import os
import runpy
import sys

folder, script = sys.argv[1:]
os.environ.update(
    DD_PROFILING_OUTPUT_PPROF=os.path.join(folder, "profile"),
    DD_PROFILING_STACK_ENABLED="false",
    DD_PROFILING_LOCK_ENABLED="false",
    DD_PROFILING_HEAP_ENABLED="true",
    DD_PROFILING_MEMORY_ENABLED="true",
    DD_TRACE_ENABLED="false",
    DD_INSTRUMENTATION_TELEMETRY_ENABLED="false",
    DD_REMOTE_CONFIGURATION_ENABLED="false",
    DD_CRASHTRACKING_ENABLED="false",
)
from ddtrace.profiling import Profiler  # noqa: E402

profiler = Profiler()
profiler.start()
sys.argv = [script]
sys.path[0] = os.path.dirname(script)
try:
    runpy.run_path(script, run_name="__main__")
finally:
    profiler.stop(flush=True)
