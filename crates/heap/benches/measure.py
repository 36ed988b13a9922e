"""CPU time and peak memory of programs on the heap, over the same on CPython's own allocator.

Needs docutils, sqlglot, sympy, jinja2, networkx and beautifulsoup4.

    cargo build --release -p nthbyte-heap --example install
    python crates/heap/benches/measure.py target/release/examples/libinstall.so

Runs alternate, so that what else the machine does hits all configurations alike; the best of the
rounds counts. A configuration is written NAME=OBJ_LIMIT,MEM_LIMIT,HUGE,HUGE_FROM_MIB,PERIOD with HUGE 0
(off), 1 (transparent) or 2 (reserved) and PERIOD 0 for no sampling.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
RUN = """
import ctypes, resource, runpy, sys
library, configuration, script, name = sys.argv[1:5]
if configuration:
    limit, memory_limit, huge, huge_from, period = map(int, configuration.split(","))
    install = ctypes.PyDLL(library).install
    install.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_size_t, ctypes.c_uint64]
    assert install(limit, memory_limit, huge, huge_from << 20, period) == 0
sys.argv = [script, name]
runpy.run_path(script, run_name="__main__")
usage = resource.getrusage(resource.RUSAGE_SELF)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
"""


def once(python: str, library: str, configuration: str, name: str) -> tuple[float, int]:
    """CPU seconds and peak KiB of one run."""
    command = [python, "-c", RUN, library, configuration, str(HERE / "workloads.py"), name]
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    seconds, peak = output.stdout.split()[-2:]
    return float(seconds), int(peak)


def geometric_mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description="Programs on the heap and on CPython's allocator.")
    parser.add_argument("library")
    parser.add_argument("configurations", nargs="*", default=["default=2032,512,1,8,524288"])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    sys.path.insert(0, str(HERE))
    from workloads import WORKLOADS

    names = arguments.only.split(",") if arguments.only else list(WORKLOADS)
    configurations = {"plain": ""} | dict(c.split("=", 1) for c in arguments.configurations)
    library = {key: arguments.library for key in configurations}
    for key, value in configurations.items():
        if "@" in value:  # another build of the library, to compare two
            configurations[key], library[key] = value.split("@", 1)
    ratios: dict[str, list[tuple[float, float]]] = {key: [] for key in configurations}
    columns = [key for key in configurations if key != "plain"]
    print(f"{'':16}{'plain':>18}" + "".join(f"{key:>18}" for key in columns))
    for name in names:
        best = {key: (math.inf, math.inf) for key in configurations}
        for _ in range(arguments.rounds):
            for key, configuration in configurations.items():
                seconds, peak = once(arguments.python, library[key], configuration, name)
                best[key] = (min(best[key][0], seconds), min(best[key][1], peak))
        line = f"{name:16}{best['plain'][0]:9.3f}s{best['plain'][1] / 1024:5.0f}MiB"
        for key in columns:
            ratio = (best[key][0] / best["plain"][0], best[key][1] / best["plain"][1])
            ratios[key].append(ratio)
            line += f"     {ratio[0]:6.3f} {ratio[1]:6.3f}"
        print(line, flush=True)
    line = f"{'geometric mean':34}"
    for key in columns:
        cpu, peak = (geometric_mean(list(column)) for column in zip(*ratios[key]))
        line += f"     {cpu:6.3f} {peak:6.3f}"
    print(line)


if __name__ == "__main__":
    main()
