"""Kill drills: what the profiles of killed processes say.

    python tests/soak/drills.py kills --times 50
    python tests/soak/drills.py memory --times 20 --kernel linux.uml

``kills`` sends SIGKILL at random moments: each profile must be whole up to its last seconds, be called incomplete, and
not be called killed for memory. ``memory`` boots a kernel of its own (Debian's package user-mode-linux), with this file
system read-only, where a control group with a limit kills a process that grows: each profile must say so, and name the
function that grew.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness import SITE, cpythons, report

# Writes after each step how many steps there were.
STEPS = """
import sys, time
kept = []
def step():
    kept.append(bytearray(100_000))
with open("steps", "wb", buffering=0) as out:
    for number in range(100_000):
        step()
        out.seek(0)
        out.write(b"%9d" % (number + 1))
        time.sleep(0.01)
"""

GROWS = """
import time
CACHE = []
def load_batch():
    for _ in range(10):
        CACHE.append(bytearray(50_000))
while True:
    load_batch()
    time.sleep(PAUSE)
"""

# The first process of the kernel.
FIRST = """#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
mount -t cgroup2 none /sys/fs/cgroup
mount -t hostfs none /mnt -o {folder}
echo +memory > /sys/fs/cgroup/cgroup.subtree_control
export PYTHONPATH={site} PYTHONDONTWRITEBYTECODE=1 HOME=/tmp PATH=/usr/bin:/bin
cd /mnt
for number in $(seq {times}); do
    group=/sys/fs/cgroup/drill$number
    mkdir $group
    echo {limit}M > $group/memory.max
    sh -c "echo \\$\\$ > $group/cgroup.procs; exec {python} -m nthbyte run -q --no-native --every 16KiB \\
      -o drill$number.nthb grows$number.py"
    echo "$number $? $(grep oom_kill $group/memory.events | head -1)" >> log
    sync
done
echo o > /proc/sysrq-trigger
sleep 100
"""
LIMIT_MIB = 96


def kills(times: int, chance: random.Random) -> list[str]:
    """Returns what was wrong."""
    wrong = []
    interpreter = cpythons()[-1]
    for number in range(times):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "app.py").write_text(STEPS)
            words = ["-m", "nthbyte", "run", "-q", "--no-native", "--every=1", "-ox.nthb", "app.py"]
            process = subprocess.Popen(
                interpreter.words(words, folder),
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(SITE)},
            )
            counter = folder / "steps"
            while not counter.exists() or not counter.read_bytes():
                assert process.poll() is None
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 3))
            before = int(counter.read_bytes())
            time.sleep(1)
            process.send_signal(signal.SIGKILL)
            process.wait()
            said = report("explain", "x.nthb", folder=folder)
            rows = json.loads(report("summary", "x.nthb", "--json", "--all-frames", folder=folder).ok().out)[
                "rows"
            ]
            steps = (
                sum(row["self_bytes"]["estimate"] for row in rows if row["name"].startswith("step")) / 100_000
            )
            text = said.out + said.err
            if said.status or "incomplete" not in text or "Last seen" in text or "damaged" in text:
                wrong.append(f"{number}: {text[:300]}")
            if not before <= steps <= before + 1_000:
                wrong.append(f"{number}: {steps} steps in the profile, {before} a second before")
    return wrong


def memory(times: int, kernel: Path, chance: random.Random) -> list[str]:
    """Returns what was wrong."""
    wrong = []
    interpreter = next(one for one in cpythons() if one.tree is None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(1, times + 1):
            pause = round(chance.uniform(0.005, 0.1), 3)
            (folder / f"grows{number}.py").write_text(GROWS.replace("PAUSE", str(pause)))
        first = folder / "first"
        python = subprocess.run(
            [interpreter.path, "-c", "import sys; print(sys.executable)"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        first.write_text(FIRST.format(folder=folder, site=SITE, times=times, limit=LIMIT_MIB, python=python))
        first.chmod(0o755)
        command = [
            str(kernel),
            "mem=512M",
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            f"init={first}",
            "con=null",
            "con0=fd:0,fd:1",
        ]
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=(folder / "kernel").open("wb"), timeout=3000)
        log = (folder / "log").read_text().splitlines()
        if len(log) != times:
            return [f"{len(log)} of {times} ran: " + (folder / "kernel").read_text(errors="replace")[-2000:]]
        for line in log:
            number, status, _, killed = line.split()
            profile = f"drill{number}.nthb"
            said = " ".join(report("explain", profile, folder=folder).out.split())
            found = re.search(
                r"Last seen at [\d:]+ UTC, RSS [\d.]+ MiB of 96.0 MiB \(the limit of its control group\): "
                r"probably killed for memory; ([\d.]+) MiB of it since [\d:]+ from load_batch",
                said,
            )
            if (status, killed) != ("137", "1"):
                wrong.append(f"{number}: not killed: {line}")
            elif not found or float(found[1]) < LIMIT_MIB / 4:
                wrong.append(f"{number}: {said[:400]}")
    return wrong


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["kills", "memory"])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--kernel", type=Path, default=Path("/usr/bin/linux.uml"))
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    if arguments.what == "kills":
        wrong = kills(arguments.times, chance)
    else:
        wrong = memory(arguments.times, arguments.kernel, chance)
    print("\n".join(wrong) or f"{arguments.times} of {arguments.times} profiles say what they must")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
