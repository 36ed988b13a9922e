"""Runs a script under VMProf: with_vmprof.py HZ OUT SCRIPT [ARGS…]"""

import os
import runpy
import sys

import vmprof

rate, out = int(sys.argv[1]), os.open(sys.argv[2], os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
sys.argv = sys.argv[3:]
sys.path[0] = os.path.dirname(sys.argv[0])
vmprof.enable(out, period=1 / rate, memory=True)
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    vmprof.disable()
