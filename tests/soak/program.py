"""A program that does at once what profilers find hard. ``soak.py`` runs it under nthbyte, with a seed.

Threads allocate, fork, make interpreters, define classes, and change the collector's settings. A signal arrives every
millisecond, and its handler allocates. Meanwhile the main thread starts and stops sessions, closes descriptors at
random, and lets the memory or the disk run out. The seed determines the actions of each thread, but not how they
interleave. Everything that the program keeps is compared with what it must be. It prints ``fine`` at the end.

Usage: program.py SEED STEPS FOLDER [FEATURE ...]
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import random
import resource
import signal
import sys
import threading
import time

try:
    import nthbyte
except ImportError:  # the comparison without nthbyte
    nthbyte = None

IS_PYPY = sys.implementation.name == "pypy"
THREADS = 3
MIB = 1 << 20

# Held while files are open, so that only files of others are closed at random.
FILES = threading.RLock()
# Held while memory is short, and while a thread starts: a thread that has no memory at its start leaves its starter
# waiting for ever, without nthbyte too.
SHORTAGE = threading.RLock()
# Whether interning a string without memory damages the table of interned strings, so that a later one crashes. Without
# nthbyte too: seen in 3.13.0, in 3 of 12 programs that only compile and run out of memory; not in 3.12.1 and 3.13.18.
BREAKS_INTERNED = not IS_PYPY and (3, 13) <= sys.version_info < (3, 13, 18)
HANDLED = [0, b""]


class Kept:
    """Objects that live for a while, and what they must be."""

    def __init__(self, chance: random.Random):
        self.chance = chance
        self.things: list[tuple[int, object]] = []

    def add(self) -> None:
        number = self.chance.randrange(1 << 20)
        self.things.append((number, make(number)))
        if len(self.things) > 300:
            self.check(self.things.pop(self.chance.randrange(len(self.things))))

    def check(self, pair: tuple[int, object]) -> None:
        number, thing = pair
        if thing != make(number):
            raise AssertionError(f"object {number} has changed")

    def check_all(self) -> None:
        for pair in self.things:
            self.check(pair)


def make(number: int) -> object:
    """Returns a new object that depends on the number only."""
    kind, size = number % 8, number % 997
    if kind == 0:
        return bytes([number % 251]) * size
    if kind == 1:
        return [number + offset for offset in range(size % 60)]
    if kind == 2:
        return {str(offset): [offset] for offset in range(size % 30)}
    if kind == 3:
        return "×".join(map(str, range(size % 50)))
    if kind == 4:
        return bytearray(size * 64)
    if kind == 5:
        return tuple((offset, float(offset)) for offset in range(size % 40))
    if kind == 6:
        return frozenset(range(size % 64))
    return [[number]] * (size % 90)


def handler(_signal: int, _frame: object) -> None:
    """Runs a thousand times per second, between any two instructions of the main thread."""
    try:
        HANDLED[0] += 1
        keep = [str(number) for number in range(20)]
        HANDLED[1] = b"x" * (HANDLED[0] % 3000)
        keep.append([HANDLED[1]])
    except MemoryError:
        pass


def cycles(chance: random.Random) -> None:
    for _ in range(chance.randrange(50)):
        one: list[object] = []
        one.append([one])


def define(chance: random.Random) -> None:
    """Code objects and types come and go, so their addresses are used again."""
    number = chance.randrange(1000)
    source = (
        f"class C{number}:\n    def __init__(self): self.a = [{number}]\n"
        f"def f{number}(x): return [C{number}() for _ in range(x)]\n"
    )
    names: dict[str, object] = {}
    with SHORTAGE if BREAKS_INTERNED else contextlib.nullcontext():
        exec(compile(source, f"<{number}>", "exec"), names)
    if len(names[f"f{number}"](chance.randrange(30))) > 30:  # type: ignore[operator]
        raise AssertionError


def recurse(chance: random.Random) -> None:
    def deeper(left: int) -> list[int]:
        return [left, *(deeper(left - 1) if left else [])]

    depth = chance.randrange(150)
    if len(deeper(depth)) != depth + 1:
        raise AssertionError


def generate(chance: random.Random) -> None:
    def numbers(count: int) -> object:
        for number in range(count):
            yield [number] * number

    # Some are dropped in the middle.
    running = [numbers(chance.randrange(1, 40)) for _ in range(5)]
    for one in running:
        next(one)  # type: ignore[call-overload]
    if sum(len(item) for item in running[0]) < 0:  # type: ignore[attr-defined]
        raise AssertionError


def fail(chance: random.Random) -> None:
    try:
        raise ValueError([make(chance.randrange(1000))])
    except ValueError as error:
        error.__traceback__ = None if chance.random() < 0.5 else error.__traceback__


def collect(chance: random.Random) -> None:
    if IS_PYPY:
        gc.collect(chance.randrange(3))
        return
    choice = chance.randrange(5)
    if choice == 0:
        gc.freeze()
    elif choice == 1:
        gc.unfreeze()
    elif choice == 2:
        gc.disable()
    elif choice == 3:
        gc.enable()
        gc.set_threshold(chance.choice([50, 700, 2000]), 10, 10)
    else:
        gc.collect(chance.randrange(3))


def faults(_chance: random.Random) -> None:
    with FILES, open(os.devnull, "w") as sink:
        faulthandler.dump_traceback(sink)


def threads(chance: random.Random) -> None:
    """A thread that lives for a moment, and sends a signal."""
    count = chance.randrange(100)
    made: list[object] = []

    def work() -> None:
        try:
            made.extend(make(number) for number in range(count))
            signal.pthread_kill(main_thread, signal.SIGUSR1)
        except MemoryError:
            pass

    with SHORTAGE:
        one = threading.Thread(target=work)
        one.start()
    one.join()


def fork(chance: random.Random) -> None:
    seed, stops = chance.random(), chance.random() < 0.3
    with FILES:
        child = os.fork()
        if child == 0:
            status = 3
            try:
                kept = Kept(random.Random(seed))
                for _ in range(200):
                    kept.add()
                kept.check_all()
                if stops and nthbyte is not None:
                    nthbyte.stop()
                status = 0
            except MemoryError:
                status = 0
            finally:
                os._exit(status)
        if os.waitpid(child, 0)[1] != 0:
            raise AssertionError("a child has failed")


INSIDE = """
keep = [[number, str(number), {number: [number]}] for number in range(300)]
assert [one[0] for one in keep] == list(range(300))
"""


def interpreter(chance: random.Random) -> None:
    try:
        import _interpreters as module
    except ImportError:
        try:
            import _xxsubinterpreters as module  # type: ignore[no-redef]
        except ImportError:
            return
    own = chance.random() < 0.5
    with FILES:
        if hasattr(module, "exec"):
            made = module.create("isolated" if own else "legacy")
            failed = module.exec(made, INSIDE)
        else:
            made = module.create(isolated=own)
            failed = module.run_string(made, INSIDE)
        module.destroy(made)
    if failed is not None:
        raise AssertionError(failed)


def close(chance: random.Random) -> None:
    """Closes descriptors of others, and has its own file under the same numbers."""
    with FILES:
        opened = [int(name) for name in os.listdir("/proc/self/fd")]
        victims = [one for one in opened if one > 2 and chance.random() < 0.7]
        for one in victims:
            try:
                os.close(one)
            except OSError:
                pass
        path = os.path.join(folder, f"own-{os.getpid()}")
        taken = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        copies = []
        for one in victims:
            if one != taken:
                copies.append(os.dup2(taken, one))
        os.write(taken, b"own")
        time.sleep(chance.random() * 0.05)
        found = os.pread(taken, 100, 0)
        for one in {taken, *copies}:
            os.close(one)
        if found != b"own":
            raise AssertionError(f"another has written to this program's file: {found!r}")


def no_memory(chance: random.Random) -> None:
    """Lets the address space run out for a moment."""
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    hoard: list[object] = []
    # The attempt to lower the limit may fail, too, and that to raise it while other threads take all memory.
    with SHORTAGE:
        try:
            resource.setrlimit(resource.RLIMIT_AS, (size + chance.choice([0, 1, 8]) * MIB, before[1]))
            piece = chance.choice([MIB, 4096, 100])
            with contextlib.suppress(MemoryError):
                while len(hoard) < 64 * MIB // piece:
                    hoard.append(bytearray(piece))
            for _ in range(100):
                hoard.append(make(chance.randrange(1000)))
                if not BREAKS_INTERNED:
                    define(chance)
        except MemoryError:
            pass
        finally:
            hoard = []
            while True:
                with contextlib.suppress(MemoryError):
                    resource.setrlimit(resource.RLIMIT_AS, before)
                    break


def full_disk(chance: random.Random) -> None:
    """Lets no file grow for a moment."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (chance.choice([0, 512, 5000, 100_000]), before[1]))
    kept = Kept(chance)
    for _ in range(1000):
        kept.add()
    time.sleep(chance.random() * 0.1)
    kept.check_all()
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def session(chance: random.Random) -> None:
    """Ends the session and starts another."""
    if nthbyte is None:
        return
    with FILES:
        nthbyte.stop()
        options = {"every": chance.choice([1, 64, 1000, "4KiB", "32KiB"]), "seed": chance.randrange(1000)}
        if IS_PYPY and chance.random() < 0.5:
            options["cpu"] = 1000
        path = os.path.join(folder, f"session-{os.getpid()}-{len(os.listdir(folder))}.nthb")
        nthbyte.start(path, **options)


ANY_THREAD = [
    (cycles, 10),
    (define, 10),
    (recurse, 5),
    (generate, 5),
    (fail, 5),
    (collect, 3),
    (faults, 1),
    (threads, 1),
]
# The feature's name, its action, and its weight beside the others.
FEATURES = {
    "forks": (fork, 2),
    "interpreters": (interpreter, 1),
    "closes": (close, 1),
    "memory": (no_memory, 1),
    "disk": (full_disk, 1),
    "sessions": (session, 2),
}


def is_expected(error: BaseException) -> bool:
    """Whether an action may fail so, because of what another action takes away."""
    if "memory" in features:
        # An allocation that fails while a module is imported appears in many forms.
        return not isinstance(error, AssertionError)
    return isinstance(error, OSError) and bool({"closes", "disk"} & set(features))


def act(seed: str, steps: int, actions: list[tuple[object, int]]) -> None:
    """Does as many actions, chosen by the seed."""
    chance = random.Random(seed)
    kept = Kept(chance)
    what, weights = zip(*actions)
    for _ in range(steps):
        # One seed for each action: where memory runs out does not change the next action.
        one = random.Random(chance.getrandbits(64))
        action = chance.choices(what, weights)[0]
        try:
            for _ in range(one.randrange(100)):
                kept.add()
            action(one)
        except Exception as error:
            if not is_expected(error):
                raise
    kept.check_all()


def guarded_act(seed: str, steps: int, actions: list[tuple[object, int]], failures: list[str]) -> None:
    try:
        act(seed, steps, actions)
    except BaseException as error:
        failures.append(f"{seed}: {error!r}")
        raise


def main() -> None:
    if nthbyte is not None and not nthbyte_is_running:
        nthbyte.start(os.path.join(folder, "session-first.nthb"), every="4KiB", seed=seed)
    signal.signal(signal.SIGALRM, handler)
    signal.signal(signal.SIGUSR1, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    faulthandler.enable()
    sys.setswitchinterval(1e-6)
    failures: list[str] = []
    others = [
        threading.Thread(target=guarded_act, args=(f"{seed}-{number}", steps, ANY_THREAD, failures))
        for number in range(THREADS)
    ]
    for thread in others:
        thread.start()
    chosen = [FEATURES[name] for name in features]
    guarded_act(f"{seed}-main", steps, ANY_THREAD + chosen * 3, failures)
    for thread in others:
        thread.join()
    signal.setitimer(signal.ITIMER_REAL, 0, 0)
    if nthbyte is not None and not nthbyte_is_running:
        nthbyte.stop()
    if failures:
        raise SystemExit("\n".join(failures))
    print("fine", flush=True)


if __name__ == "__main__":
    seed, steps, folder, *features = sys.argv[1:]
    seed, steps = int(seed), int(steps)  # type: ignore[assignment]
    nthbyte_is_running = "run" in features
    features = [name for name in features if name in FEATURES]
    if nthbyte_is_running and "sessions" in features:
        features.remove("sessions")
    if "plain" in sys.argv:
        nthbyte = None
    main_thread = threading.get_ident()
    main()
