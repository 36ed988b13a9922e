"""``nthbyte import`` of PyTorch's snapshots of device memory, made by hand in the form that its documentation gives."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from harness import cpythons, report

MIB = 1 << 20


def _frames(*names: str) -> list[dict[str, Any]]:
    """A stack, the innermost frame first, as PyTorch has it; with C++ inside."""
    cpp = {
        "name": "c10::cuda::CUDACachingAllocator::malloc",
        "filename": "CUDACachingAllocator.cpp",
        "line": 0,
    }
    return [cpp, *({"name": name, "filename": "/srv/model.py", "line": 10 + len(name)} for name in names)]


def _block(address: int, size: int, state: str, frames: list[dict[str, Any]]) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": size - 24, "state": state, "frames": frames}


def _entry(action: str, address: int, size: int, at: int, frames: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "action": action,
        "addr": address,
        "size": size,
        "stream": 0,
        "time_us": 1_700_000_000_000_000 + at,
        "compile_context": "N/A",
        "user_metadata": "",
        "frames": frames,
    }


def snapshot() -> dict[str, Any]:
    """Weights from before the history; a freed batch; activations in use; a block that waits for its stream."""
    weights, batch, activations = (
        _frames("load", "main"),
        _frames("next_batch", "main"),
        _frames("forward", "main"),
    )
    high = 0x7F12_0000_0000
    segment = {
        "device": 1,
        "address": high,
        "total_size": 64 * MIB,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "allocated_size": 40 * MIB,
        "active_size": 44 * MIB,
        "requested_size": 40 * MIB - 48,
        "frames": [],
        "blocks": [
            _block(high, 30 * MIB, "active_allocated", weights),
            _block(high + 30 * MIB, 10 * MIB, "active_allocated", activations),
            _block(high + 40 * MIB, 4 * MIB, "active_awaiting_free", batch),
            _block(high + 44 * MIB, 20 * MIB, "inactive", []),
        ],
    }
    trace = [
        _entry("segment_alloc", high, 64 * MIB, 0, weights),
        _entry("alloc", high + 44 * MIB, 8 * MIB, 1_000, batch),
        _entry("alloc", high + 30 * MIB, 10 * MIB, 2_000, activations),
        _entry(
            "alloc",
            high + 60 * MIB,
            1 * MIB,
            2_100,
            [{"name": "at::native::empty", "filename": "??", "line": 0}],
        ),
        _entry("free_requested", high + 44 * MIB, 8 * MIB, 3_000, batch),
        _entry("free_completed", high + 44 * MIB, 8 * MIB, 3_100, batch),
        {"action": "oom", "size": 1 << 40, "device_free": 5, "stream": 0, "time_us": 0, "frames": batch},
        _entry("snapshot", 0, 0, 4_000, []),
    ]
    return {
        "segments": [segment],
        "device_traces": [[], trace],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage": 0.5},
        "external_annotations": [],
    }


def _written(way: str, content: object, folder: Path) -> Path:
    file = folder / f"snapshot.{way}"
    if way == "json":
        file.write_text(json.dumps(content))
    else:
        file.write_bytes(pickle.dumps(content, protocol=int(way)))
    return file


def _rows(profile: Path, folder: Path, *options: str) -> dict[str, Any]:
    words = ["summary", profile, "--json", "--all-frames", *options]
    return {row["name"]: row for row in json.loads(report(*words, folder=folder).ok().out)["rows"]}


@pytest.mark.parametrize("way", ["2", "3", "4", "5", "json"])
def test_device_memory_by_python_stacks(tmp_path: Path, way: str) -> None:
    file = _written(way, snapshot(), tmp_path)
    said = report("import", file, "-o", "gpu.nthb", folder=tmp_path).ok()
    assert "2 blocks were in use" in said.err
    gpu = tmp_path / "gpu.nthb"
    rows = _rows(gpu, tmp_path)
    own = {name: (row["self_bytes"]["estimate"], row["still_live"]["estimate"]) for name, row in rows.items()}
    # The frames of C++ are left out, but for the stack that has no others.
    assert own == {
        "load": (30 * MIB - 24, 30 * MIB - 24),
        "forward": (10 * MIB - 24, 10 * MIB - 24),
        "next_batch": (8 * MIB, 0),
        "at::native::empty": (MIB, 0),
        "main": (0, 0),
    }
    assert rows["main"]["total_bytes"]["estimate"] == 48 * MIB - 48
    assert all(row["total_bytes"]["low"] == row["total_bytes"]["high"] for row in rows.values())
    by_type = _rows(gpu, tmp_path, "--by=type")
    assert list(by_type) == ["cuda:1"]
    lines = _rows(gpu, tmp_path, "--by=line")
    assert [(row["name"], row["line"]) for row in lines.values()][:2] == [("load", 14), ("forward", 17)]
    assert list(_rows(gpu, tmp_path, "--since=1.5ms")) != []
    assert _rows(gpu, tmp_path, "--domain=python") == {}


def test_beside_the_profile_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("kept = [bytearray(1_000_000) for _ in range(30)]\n")
    words = ["run", "-q", "--no-native", "--every=64KiB", "-oapp.nthb", "app.py"]
    cpythons()[-1].nthbyte(*words, folder=tmp_path).ok()
    report("import", _written("4", snapshot(), tmp_path), "-o", "gpu.nthb", folder=tmp_path).ok()
    report("merge", "app.nthb", "gpu.nthb", "-o", "both.nthb", folder=tmp_path).ok()
    both = tmp_path / "both.nthb"
    device = _rows(both, tmp_path, "--domain=device")
    assert device["load"]["still_live"]["estimate"] == 30 * MIB - 24
    python = _rows(both, tmp_path, "--domain=python")
    assert "load" not in python and sum(row["self_bytes"]["estimate"] for row in python.values()) > 25e6
    assert {"load", "forward"} <= set(_rows(both, tmp_path))


def test_a_pickle_is_not_run(tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> Any:
            return os.mkdir, ("made",)

    file = tmp_path / "hostile.pickle"
    file.write_bytes(pickle.dumps({"segments": [Hostile()], "device_traces": []}))
    done = report("import", file, "-o", "x.nthb", folder=tmp_path)
    (line,) = done.err.splitlines()
    assert done.status == 1 and "more than numbers, texts, lists and dictionaries" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hostile.pickle"]


def test_what_is_made_to_harm(tmp_path: Path) -> None:
    nested: list[Any] = []
    for _ in range(90):
        nested = [nested]
    frames = _frames("load")
    blocks = [_block(0, 1, "active_allocated", frames)] * 5_000
    segments = [{"address": 0, "device": 0, "stream": 0, "blocks": blocks}] * 5_000
    circle: list[Any] = []
    circle.append(circle)
    deep = b"\x80\x04" + b"]" * 100_000 + b"a" * 99_999 + b"."
    whole = pickle.dumps(snapshot())
    contents = {
        "deep": deep,
        "nested": pickle.dumps({"segments": nested, "device_traces": []}),
        "many": pickle.dumps({"segments": segments, "device_traces": []}),
        "circle": pickle.dumps({"segments": circle, "device_traces": []}),
        "other": pickle.dumps({"a": 1}),
        "list": pickle.dumps([1]),
        "json": b'{"segments": 1',
        "empty": b"\x80\x04.",
        **{f"cut{at}": whole[:at] for at in range(2, len(whole), 97)},
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        done = report("import", name, "-o", f"{name}.nthb", folder=tmp_path)
        assert done.status == 1 and len(done.err.splitlines()) == 1, (name, done)
        assert "is not a snapshot of PyTorch" in done.err, (name, done)
        assert not (tmp_path / f"{name}.nthb").exists()
