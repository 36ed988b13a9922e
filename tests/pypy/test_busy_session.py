"""A thread that has the session for long keeps a collection from recording what it has shown."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from harness import Interpreter, summary

# A thread that is sampled all the time, and is stopped by a signal handler again and again: often while it has the
# session's lock.
BUSY = """
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void stop(int signal) { (void)signal; usleep(10000); }

static void *work(void *argument)
{
    for (;;) free(malloc(100000));
    return argument;
}

static void *disturb(void *thread)
{
    for (;;) {
        usleep(12000);
        pthread_kill((pthread_t)thread, SIGRTMAX);
    }
    return NULL;
}

void begin(void)
{
    struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
    sigaction(SIGRTMAX, &action, NULL);
    pthread_t thread, other;
    pthread_create(&thread, NULL, work, NULL);
    pthread_create(&other, NULL, disturb, (void *)thread);
}
"""

PROGRAM = """
import ctypes, os
busy = ctypes.CDLL(os.path.abspath("busy.so"))
busy.begin()
def large():
    # It dies in the next collection. Blocks of more than 32 MiB are unmapped then.
    len(b"x" * (40 << 20))
def small():
    return [[number] for number in range(300_000)]
for _ in range(60):
    large()
    small()
print("well")
"""


def test_a_collection_that_cannot_record_leaves_no_samples(pypy: Interpreter, tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    (tmp_path / "busy.c").write_text(BUSY)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-pthread", "-o", "busy.so", "busy.c"], cwd=tmp_path, check=True
    )
    (tmp_path / "app.py").write_text(PROGRAM)
    words = ["run", "-q", "--native", "--every", "4K", "-o", "out.nthb", "app.py"]
    done = pypy.nthbyte(*words, folder=tmp_path).ok()
    assert done.out == "well\n"
    found = summary(tmp_path / "out.nthb")
    assert found["complete"]
    rows = {row["name"]: row for row in found["rows"]}
    assert rows["small"]["samples"] > 0
