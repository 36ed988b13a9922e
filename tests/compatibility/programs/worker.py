"""Starts a worker of Celery, gives it thirty-three tasks, and ends it; prints the results and how the worker ended.

Usage: worker.py POOL PYTHON [ARGUMENTS...], where PYTHON ARGUMENTS -m celery … is the worker.
"""

import subprocess
import sys

import tasks

pool, *python = sys.argv[1:]
words = ["-m", "celery", "-A", "tasks", "worker", "--pool", pool, "--concurrency", "2", "--loglevel", "ERROR"]
quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
# Its log has times and numbers of tasks.
log = subprocess.DEVNULL
worker = subprocess.Popen([*python, *words, *quiet], stdout=log, stderr=log)
asked = [tasks.digest.delay(1000 * number) for number in range(30)]
failing = [tasks.fail.delay(number) for number in range(3)]
for one in asked:
    print(one.get(timeout=200, interval=0.05))
for one in failing:
    try:
        one.get(timeout=200, interval=0.05)
    except ValueError as error:
        print(repr(error))
worker.terminate()
print("the worker ended with", worker.wait())
