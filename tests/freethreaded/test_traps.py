"""What an interpreter does between two allocations: collections over memory that was never used, threads and
interpreters that end, forks, other tracers. Each test runs what once went wrong, or could.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Interpreter

from .driver import DRIVER, check

STALE_BITS = """
install()
driver.start(int(sys.argv[2]), 3)
for round in range(6):
    # Memory that says everywhere that the collector knows an object here.
    blocks = [b"\\xff" * (i % 900 + 20) for i in range(120_000)]
    lists = [[i] * (i % 60 + 1) for i in range(20_000)]
    del blocks, lists
    gc.collect()
    # Pages of the collector's heaps are made of it, and are not used up when it runs.
    nodes = []
    for i in range(3000):
        nodes.append(Node(i))
        nodes.append(Slots())
        if i % 100 == 0:
            gc.collect()
print(json.dumps(totals()))
"""


@pytest.mark.parametrize("period", [4096, 512 << 10])
def test_the_collector_finds_no_objects_on_lists(
    period: int, threaded: Interpreter, cut_lists: Path, tmp_path: Path
) -> None:
    found = check(threaded, cut_lists, tmp_path, STALE_BITS, period)
    assert found["wrong"] == 0 and found["samples"] > 0


ENDING_THREADS = """
install()
driver.start(4096, 5)
kept = []

def briefly():
    kept.append([Node(i) for i in range(300)])
    work(300)

for n in range(3):
    run([threading.Thread(target=briefly) for _ in range(4)])
kept.clear()
gc.collect()
before, pages = sys.getallocatedblocks(), totals()["pages"]
for n in range(50):
    run([threading.Thread(target=briefly) for _ in range(4)])
    kept.clear()
gc.collect()
print(json.dumps({**totals(), "more": sys.getallocatedblocks() - before}))
"""


def test_threads_that_end_give_their_lists_back(
    threaded: Interpreter, cut_lists: Path, tmp_path: Path
) -> None:
    found = check(threaded, cut_lists, tmp_path, ENDING_THREADS)
    # The lists of one thread hold some thousand blocks: 200 threads that kept theirs would have hundreds of thousands.
    assert found["more"] < 30_000
    # All records but the main thread's are free: each thread's lists went back when it ended.
    assert found["free"] == found["records"] - 1 <= 9
    assert found["wrong"] == 0
    assert abs(found["estimate"] / found["bytes"] - 1) < 6 / found["samples"] ** 0.5 + 0.02


FORKS = """
install()
driver.start(int(sys.argv[2]), 6)
done = threading.Event()

def live():
    while not done.is_set():
        work(500)

others = [threading.Thread(target=live) for _ in range(3)]
for other in others:
    other.start()
driver.fuzz(1, 30_000, id(Node))
statuses = []
for number in range(1, 9):
    child = os.fork()
    if child == 0:
        driver.forked(number)
        driver.fuzz(number, 30_000, id(Slots))
        gc.collect()
        run([threading.Thread(target=driver.fuzz, args=(number + n, 20_000, id(Node))) for n in range(2)])
        now = totals()
        os._exit(now["wrong"] != 0 or now["samples"] == 0)
    driver.fuzz(100 + number, 10_000, id(Node))
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
done.set()
for other in others:
    other.join()
print(json.dumps({**totals(), "statuses": statuses}))
"""


def test_the_child_of_a_fork_goes_on(threaded: Interpreter, cut_lists: Path, tmp_path: Path) -> None:
    found = check(threaded, cut_lists, tmp_path, FORKS, 8192)
    assert found["statuses"] == [0] * 8
    assert found["wrong"] == 0


INTERPRETERS = """
import _interpreters
install()
driver.start(4096, 8)
PROGRAM = '''
import gc
class Node:
    def __init__(self, i):
        self.i, self.me, self.data = i, self, [i, str(i)]
for round in range(5):
    kept = [Node(i) for i in range(500)]
    texts = [str(i) * 5 for i in range(500)]
    gc.collect()
'''

def others(n):
    for i in range(n):
        # Thread states of one address and number follow each other.
        interpreter = _interpreters.create()
        assert _interpreters.exec(interpreter, PROGRAM) is None
        _interpreters.destroy(interpreter)
        work(300)

others(12)
run([threading.Thread(target=others, args=(4,)) for _ in range(2)])
gc.collect()
driver.fuzz(1, 20_000, id(Node))
print(json.dumps(totals()))
"""


def test_interpreters_follow_each_other(threaded: Interpreter, cut_lists: Path, tmp_path: Path) -> None:
    found = check(threaded, cut_lists, tmp_path, INTERPRETERS)
    assert found["wrong"] == 0
    assert found["samples"] > 0


SESSIONS = """
install()
driver.start(4096, 9)
kept = [Node(i) for i in range(2000)]
first, alive = totals(), driver.alive()
driver.stop()
work(1000)
stopped = totals()
del kept
gc.collect()
after = driver.alive()
driver.start(8192, 10)
driver.fuzz(1, 50_000, id(Node))
second = totals()
driver.set_period(512)
driver.fuzz(2, 50_000, id(Slots))
third = totals()
driver.set_period(1 << 20)
driver.fuzz(3, 50_000, 0)
print(json.dumps([first, alive, stopped, after, second, third, totals()]))
"""


def test_sessions_and_periods_follow_each_other(
    threaded: Interpreter, cut_lists: Path, tmp_path: Path
) -> None:
    first, alive, stopped, after, second, third, last = check(threaded, cut_lists, tmp_path, SESSIONS)
    assert first["samples"] > 100 and alive > 50
    # Nothing is told of a session that has ended.
    assert stopped["seen"] == first["seen"] and after == alive
    assert last["wrong"] == 0
    often = third["samples"] - second["samples"]
    assert often > 5 * second["samples"] and last["samples"] - third["samples"] < second["samples"]


TRACED = """
import tracemalloc
install()
driver.start(4096, 3)
tracemalloc.start()
work(500)
tracemalloc.stop()
work(500)
driver.fuzz(1, 20_000, id(Node))
print(json.dumps(totals()))
"""


def test_tracemalloc_after_us_works(threaded: Interpreter, cut_lists: Path, tmp_path: Path) -> None:
    found = check(threaded, cut_lists, tmp_path, TRACED)
    assert found["wrong"] == 0 and found["samples"] > 0


REFUSED = """
words = [(ctypes.c_size_t * 5)() for _ in range(4)]
get = ctypes.pythonapi.PyMem_GetAllocator
for n, into in enumerate(words[:2]):
    get(n + 1, into)
answer = driver.install().decode()
for n, into in enumerate(words[2:]):
    get(n + 1, into)
same = list(words[0]) == list(words[2]) and list(words[1]) == list(words[3])
print(json.dumps([answer, same]))
"""


@pytest.mark.parametrize("flags", [("-X", "dev"), ("-X", "tracemalloc")])
def test_other_allocators_are_refused(
    flags: tuple[str, ...], threaded: Interpreter, cut_lists: Path, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(DRIVER + REFUSED)
    done = threaded.python(*flags, "app.py", cut_lists, folder=tmp_path).ok()
    assert "stand before its allocator" in done.out and "true" in done.out


LAYOUT = """
print(json.dumps([
    [driver.verify_with(field, change).decode() for change in (0, 8, -8, 16, 64, -64, 4096)] for field in range(10)
]))
"""


def test_each_wrong_offset_is_refused(threaded: Interpreter, cut_lists: Path, tmp_path: Path) -> None:
    answers = check(threaded, cut_lists, tmp_path, LAYOUT)
    for field, (right, *wrong) in enumerate(answers):
        assert right == "fine", (field, right)
        assert "fine" not in wrong, (field, wrong)
