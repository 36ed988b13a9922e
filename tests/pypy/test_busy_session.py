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
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_t worker, other;
static atomic_bool is_over;

static void stop(int signal) { (void)signal; usleep(10000); }

static void *work(void *argument)
{
    while (!is_over) free(malloc(100000));
    return argument;
}

static void *disturb(void *argument)
{
    while (!is_over) {
        usleep(12000);
        pthread_kill(worker, SIGRTMAX);
    }
    return argument;
}

void begin(void)
{
    struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
    sigaction(SIGRTMAX, &action, NULL);
    pthread_create(&worker, NULL, work, NULL);
    pthread_create(&other, NULL, disturb, NULL);
}

void end(void)
{
    is_over = true;
    pthread_join(other, NULL);
    pthread_join(worker, NULL);
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
    lists = []
    for number in range(300_000):
        lists.append([number])
def undisturbed():
    lists = []
    for number in range(1_000_000):
        lists.append([number])
for _ in range(60):
    large()
    small()
busy.end()
undisturbed()
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
    # On a busy machine it may be that no collection could record before.
    assert rows["undisturbed"]["samples"] > 0
