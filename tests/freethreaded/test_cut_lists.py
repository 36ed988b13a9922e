"""Are exactly the predicted allocations sampled, inside of a free-threaded CPython's mimalloc?

The driver predicts: see its first lines. Each test checks `wrong`: an unpredicted sample, a missing one, a free told
never or twice, a block given out twice, or memory that should be zero.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import IS_ALL, Interpreter

from .driver import check

# Operations of each thread of the fuzzer.
OPERATIONS = 2_000_000 if IS_ALL else 200_000


ALONE = """
install()
period, operations = int(sys.argv[2]), int(sys.argv[3])
driver.start(period, 7)
predicted = sum(driver.fuzz(seed, operations // 2, id(kind)) for seed, kind in ((1, Slots), (2, Node)))
print(json.dumps({**totals(), "predicted": predicted, "alive": driver.alive()}))
"""


@pytest.mark.parametrize("period", [4096, 32 << 10, 512 << 10])
def test_each_sample_is_predicted(
    period: int, threaded: Interpreter, cut_lists: Path, tmp_path: Path
) -> None:
    found = check(threaded, cut_lists, tmp_path, ALONE, period, 2 * OPERATIONS)
    assert found["wrong"] == 0
    assert found["lost"] <= found["samples"] // 1000 + 1
    # What the interpreter itself allocated is not the driver's.
    assert found["predicted"] > 0.8 * found["samples"] > 0
    assert found["seen"] == found["samples"]
    # All is freed at the end, but for what the interpreter keeps, and what waits for another thread.
    assert found["alive"] < found["samples"] / 10 + 30
    # Six standard deviations of a Poisson process, and the bytes asked for are an eighth less than the blocks' at most.
    assert abs(found["estimate"] / found["bytes"] - 1) < 6 / found["samples"] ** 0.5 + 0.01


THREADS = """
import random
install()
period, operations, rounds = map(int, sys.argv[2:])
driver.start(period, 11)
predicted, done = [], threading.Event()

def fuzz(seed):
    predicted.append(driver.fuzz(seed, operations, id(random.Random(seed).choice((Slots, Node)))))

def collect():
    while not done.is_set():
        gc.collect()

def live():
    while not done.is_set():
        work(2000)

others = [threading.Thread(target=collect), threading.Thread(target=live)]
for other in others:
    other.start()
for round in range(rounds):
    # Threads end, and new ones begin, which reclaim their segments.
    run([threading.Thread(target=fuzz, args=(4 * round + n,)) for n in range(4)])
done.set()
for other in others:
    other.join()
driver.free_exchanged()
collections = sum(one["collections"] for one in gc.get_stats())
print(json.dumps({**totals(), "predicted": sum(predicted), "collections": collections}))
"""


@pytest.mark.parametrize("period", [4096, 32 << 10])
def test_each_sample_is_predicted_in_threads(
    period: int, threaded: Interpreter, cut_lists: Path, tmp_path: Path
) -> None:
    rounds = 4
    found = check(threaded, cut_lists, tmp_path, THREADS, period, OPERATIONS // 4, rounds)
    assert found["wrong"] == 0
    assert found["predicted"] > 0
    assert found["collections"] > 0
    # Records of threads that have ended are used again.
    assert found["records"] <= 4 + 3 + 4
    assert abs(found["estimate"] / found["bytes"] - 1) < 6 / found["samples"] ** 0.5 + 0.02
