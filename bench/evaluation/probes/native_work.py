"""Work whose memory is native code's: ``native_work.py CASE [KIB]``.

Does it a tenth of the times first, so that caches are warm, and prints what the rest used: ``cpu`` in seconds, ``faults``;
or ``missing``, the package that is not there. With ``--short``, it is done a few times; with ``--second-thread``,
the process has had another thread.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import resource
import sys
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

IS_PYPY = sys.implementation.name == "pypy"

Step = Callable[[], object]


def need(name: str) -> Any:
    """Imports a package, or ends."""
    try:
        return importlib.import_module(name)
    except ImportError:
        print(json.dumps({"missing": name}))
        sys.exit()


def numpy(size: int) -> tuple[int, Step]:
    """An expression of arrays of ``size`` bytes, with two results."""
    array = need("numpy").ones(size // 8)

    def step() -> None:
        doubled = array * 2.0
        doubled + array

    times = (8 * GIB if size < 128 * KIB else GIB // 2) // max(size, 32 * KIB)
    # There, a call of NumPy takes 35 µs.
    return times // 10 if IS_PYPY and size < 128 * KIB else times, step


def pillow(_: int) -> tuple[int, Step]:
    """Images are made, changed, and written."""
    image, filters = need("PIL.Image"), need("PIL.ImageFilter")
    photo = image.effect_noise((1024, 768), 50).convert("RGB")

    def step() -> None:
        small = photo.resize((640, 480)).rotate(7).filter(filters.BoxBlur(2))
        small.convert("L").save(io.BytesIO(), "PNG", compress_level=1)

    return 30, step


def frames(_: int) -> tuple[int, Step]:
    """Frames of a video, as OpenCV has them: copies, a crop, other types."""
    np = need("numpy")
    frame = np.full((1080, 1920, 3), 7, dtype=np.uint8)

    def step() -> None:
        one = frame.copy()
        grey = one[:, :, 1].astype(np.float32)
        grey *= 0.5
        half = np.ascontiguousarray(one[::2, ::2])
        np.stack([half, 255 - half]).sum()
        grey.astype(np.uint8)

    return 50, step


def _table(words: Any) -> dict[str, Any]:
    np = need("numpy")
    random = np.random.default_rng(1)
    count = 50_000
    return {
        "group": random.integers(0, 300, count),
        "value": random.random(count),
        "name": words([f"name {number}" for number in random.integers(0, 5000, count)]),
    }


def _pandas(kind: str, times: int) -> tuple[int, Step]:
    need("numpy")
    pandas = need("pandas")
    if kind != "object":
        need("pyarrow")
    frame = pandas.DataFrame(_table(lambda names: pandas.Series(names, dtype=kind)))

    def step() -> None:
        upper = frame.assign(name=frame["name"].str.upper(), twice=frame["value"] * 2)
        upper.groupby("group")["twice"].mean()
        upper.sort_values("value").drop_duplicates("name").merge(frame.head(2000), on="group")

    return times, step


def pandas_objects(_: int) -> tuple[int, Step]:
    """A table whose strings are Python's."""
    return _pandas("object", 15)


def pandas_arrow(_: int) -> tuple[int, Step]:
    """The same, whose strings are Arrow's."""
    return _pandas("string[pyarrow]", 30)


def polars(_: int) -> tuple[int, Step]:
    """The same with polars, which allocates with jemalloc."""
    need("numpy")
    pl = need("polars")
    frame = pl.DataFrame(_table(list))

    def step() -> None:
        upper = frame.with_columns(pl.col("name").str.to_uppercase(), twice=pl.col("value") * 2)
        upper.group_by("group").agg(pl.col("twice").mean())
        upper.sort("value").unique("name").join(frame.head(2000), on="group")

    return 40, step


def read(size: int) -> tuple[int, Step]:
    """Reads of ``size`` bytes."""
    file = os.open("/dev/zero", os.O_RDONLY)
    # PyPy copies what it has read.
    return (GIB if IS_PYPY or size > 32 * MIB else 32 * GIB) // size, lambda: os.read(file, size)


def compress(_: int) -> tuple[int, Step]:
    """Compression of a mebibyte, and the inverse."""
    data = b"".join(b"%d %x;" % (number, number * number) for number in range(60_000))[:MIB]
    return 50, lambda: zlib.decompress(zlib.compress(data, 1))


def sqlite(_: int) -> tuple[int, Step]:
    """A database in memory is filled and asked."""
    sqlite3 = need("sqlite3")
    rows = [(number, f"name {number % 700}", "x" * (number % 90)) for number in range(5000)]

    def step() -> None:
        base = sqlite3.connect(":memory:")
        base.execute("create table t (id integer primary key, name text, rest text)")
        base.executemany("insert into t values (?, ?, ?)", rows)
        base.execute("create index i on t (name)")
        base.execute("select name, count(*), max(rest) from t group by name order by 2").fetchall()
        base.close()

    return 80, step


CASES: dict[str, Callable[[int], tuple[int, Step]]] = {
    "numpy": numpy,
    "pillow": pillow,
    "frames": frames,
    "pandas-objects": pandas_objects,
    "pandas-arrow": pandas_arrow,
    "polars": polars,
    "read": read,
    "zlib": compress,
    "sqlite": sqlite,
}


def main() -> None:
    """Does the work of a case."""
    name, *rest = sys.argv[1:]
    is_short = "--short" in rest
    if "--second-thread" in rest:
        second = threading.Thread(target=int)
        second.start()
        second.join()
    size = next((int(word) * KIB for word in rest if word.isdigit()), 0)
    try:
        times, step = CASES[name](size)
    except NameError:
        # The package is there, but its machine code is another interpreter's.
        print(json.dumps({"missing": name}))
        return
    times = 1 + times // 50 if is_short else times
    for _ in range(times // 10 + 2):
        step()
    used, start = resource.getrusage(resource.RUSAGE_SELF), time.process_time()
    for _ in range(times):
        step()
    cpu, faults = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    print(json.dumps({"cpu": cpu, "faults": faults - used.ru_minflt}))


if __name__ == "__main__":
    main()
