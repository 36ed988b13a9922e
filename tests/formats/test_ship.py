"""``nthbyte ship`` to receivers on the loopback interface: what arrives is what the summary says, once."""

from __future__ import annotations

import base64
import gzip
import http.server
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from formats.protobuf import fields
from harness import COMMAND, cpythons, report

PROGRAM = """
import time, nthbyte
kept = []
def stays():
    kept.append([bytearray(20_000) for _ in range(50)])
def passes():
    return [bytearray(20_000) for _ in range(50)]
with nthbyte.label(endpoint="/a"):
    for step in range(30):
        stays()
        passes()
        time.sleep(0.1)
SECRET = {"a key that nobody may see": [bytearray(20_000) for _ in range(50)]}
"""


class Receiver:
    """A server that answers what ``answers`` has, then 200, and keeps what it got."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[int] = []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status = receiver.answers.pop(0) if receiver.answers else 200
                headers = {name.lower(): value for name, value in self.headers.items()}
                if status == 200:
                    receiver.got.append((self.path, headers, body))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(b"said")

            def log_message(self, *words: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ship")
    (folder / "app.py").write_text(PROGRAM)
    words = [
        "run",
        "-q",
        "--no-native",
        "--holders",
        "--every=4KiB",
        "--seed=1",
        "--tags=service:web,env:prod",
    ]
    (folder / "profiles").mkdir()
    cpythons()[-1].nthbyte(*words, "-oprofiles/app.nthb", "app.py", folder=folder).ok()
    return folder


def _ship(folder: Path, *words: str, queue: Path) -> Any:
    options = ["--once", "--every=1s", f"--queue={queue}"]
    return report("ship", folder / "profiles", *options, *words, folder=folder)


def _pprof(body: bytes) -> dict[str, list[int]]:
    """The sums of the four values, by function at the innermost place."""
    message = fields(gzip.decompress(body))
    strings = [text.decode() for text in message[6]]
    functions = {fields(one)[1][0]: strings[fields(one)[2][0]] for one in message[5]}
    locations = {fields(one)[1][0]: functions[fields(fields(one)[4][0])[1][0]] for one in message[4]}
    sums: dict[str, list[int]] = {}
    for sample in map(fields, message[2]):
        name = locations[_numbers(sample[1][0])[0]]
        values = _numbers(sample[2][0])
        of = sums.setdefault(name.split(".")[0], [0] * 4)
        sums[name.split(".")[0]] = [a + b for a, b in zip(of, values)]
    return sums


def _numbers(packed: Any) -> list[int]:
    """The numbers of a packed field."""
    if isinstance(packed, int):
        return [packed]
    found, at = [], 0
    while at < len(packed):
        value = shift = 0
        while True:
            byte = packed[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if not byte & 128:
                break
        found.append(value)
    return found


def _expected(folder: Path) -> dict[str, float]:
    words = ["summary", folder / "profiles", "--all-frames", "--json"]
    rows = json.loads(report(*words, folder=folder).ok().out)["rows"]
    sums: dict[str, float] = {}
    for row in rows:
        name = row["name"].split(".")[0]
        sums[name] = sums.get(name, 0) + row["self_bytes"]["estimate"]
    return sums


def _compare(sums: dict[str, int], folder: Path) -> None:
    """All windows together are the recording: each row of a window is rounded to a whole number."""
    expected = _expected(folder)
    for name in ("stays", "passes"):
        assert sums[name] == pytest.approx(expected[name], rel=1e-3)
    assert sum(sums.values()) == pytest.approx(sum(expected.values()), rel=1e-3)


def test_pyroscope_gets_each_window_once(folder: Path, receiver: Receiver, tmp_path: Path) -> None:
    to = f"--to=pyroscope={receiver.url}"
    # It is busy, and then away for one look.
    receiver.answers = [503]
    assert _ship(folder, to, queue=tmp_path / "queue").status == 1
    assert _ship(folder, to, queue=tmp_path / "queue").status == 0
    assert _ship(folder, to, queue=tmp_path / "queue").status == 0
    assert {path for path, _, _ in receiver.got} == {"/push.v1.PusherService/Push"}
    series = [json.loads(body)["series"][0] for _, _, body in receiver.got]
    labels = {label["name"]: label["value"] for label in series[0]["labels"]}
    assert labels["service_name"] == "web" and labels["env"] == "prod" and labels["__name__"] == "memory"
    identities = [one["samples"][0]["ID"] for one in series]
    assert len(set(identities)) == len(identities) >= 3
    bodies = [base64.b64decode(one["samples"][0]["rawProfile"]) for one in series]
    windows = [_pprof(body) for body in bodies]
    sums: dict[str, int] = {}
    for window in windows:
        for name, values in window.items():
            sums[name] = sums.get(name, 0) + values[1]
    _compare(sums, folder)
    # What is in use grows from window to window, and what passes is in use in none for long.
    in_use = [window.get("stays", [0] * 4)[3] for window in windows]
    assert in_use == sorted(in_use) and in_use[-1] == pytest.approx(30e6, rel=0.1)
    assert windows[-1].get("passes", [0] * 4)[3] < 3e6
    for body in bodies:
        assert b"nobody may see" not in gzip.decompress(body)


def test_otlp_has_what_the_summary_has(folder: Path, receiver: Receiver, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("letmein\n")
    to = [f"--to=otlp={receiver.url}", f"--token-file={token}"]
    assert _ship(folder, *to, queue=tmp_path / "queue").status == 0
    sums: dict[str, int] = {}
    for path, headers, body in receiver.got:
        assert path == "/v1development/profiles"
        assert headers["content-type"] == "application/x-protobuf"
        assert headers["authorization"] == "Bearer letmein"
        assert b"nobody may see" not in body
        request = fields(body)
        (of_resource,) = request[1]
        dictionary = fields(request[2][0])
        strings = [text.decode() for text in dictionary[5]]
        # Element 0 of each table has no value.
        assert strings[0] == "" and all(dictionary[table][0] == b"" for table in (1, 2, 3, 4, 6, 7))
        resource = {}
        for attribute in map(fields, fields(fields(of_resource)[1][0])[1]):
            resource[attribute[1][0].decode()] = next(iter(fields(attribute[2][0]).values()))[0]
        assert resource["service.name"] == b"web" and resource["env"] == b"prod"
        assert b"3." in resource["process.runtime.description"]
        profiles = [fields(one) for one in fields(fields(of_resource)[2][0])[2]]
        kinds = [strings[fields(profile[1][0])[1][0]] for profile in profiles]
        assert kinds == ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]
        assert len({profile[7][0] for profile in profiles}) == 4 and len(profiles[0][7][0]) == 16
        for sample in map(fields, profiles[1].get(2, [])):
            (stack,) = sample[1]
            locations = _numbers(fields(dictionary[7][stack])[1][0])
            line = fields(fields(dictionary[2][locations[0]])[3][0])
            name = strings[fields(dictionary[3][line[1][0]])[1][0]].split(".")[0]
            sums[name] = sums.get(name, 0) + _numbers(sample[4][0])[0]
            attributes = [fields(dictionary[6][number]) for number in _numbers(sample[2][0])]
            keys = [strings[attribute[1][0]] for attribute in attributes]
            assert "nthbyte.type" in keys
            if name == "stays":
                assert "endpoint" in keys
        # No index is out of range, and nothing is there that nobody refers to.
        for profile in profiles:
            for sample in map(fields, profile.get(2, [])):
                assert 0 < sample[1][0] < len(dictionary[7])
    _compare(sums, folder)


def test_files_of_pprof_and_what_is_refused(folder: Path, receiver: Receiver, tmp_path: Path) -> None:
    said = (
        report("ship", folder / "profiles", "--to=folder=x", "--dry-run", "--every=1s", folder=tmp_path)
        .ok()
        .err
    )
    assert said.count("would send") >= 3 and list(tmp_path.iterdir()) == []
    receiver.answers = [400]
    to = [f"--to=folder={tmp_path / 'out'}", f"--to=otlp={receiver.url}"]
    done = _ship(folder, *to, queue=tmp_path / "queue")
    assert done.status == 0 and done.err.count("refuses a window: 400 said") == 1
    files = sorted((tmp_path / "out").iterdir())
    # One is lost to the other receiver, which said that it will never take it.
    assert len(files) == len(receiver.got) + 1
    assert all(path.name.endswith(".pb.gz") for path in files)
    assert sum(_pprof(path.read_bytes()).get("stays", [0] * 4)[1] for path in files) == pytest.approx(
        30e6, rel=0.1
    )
    for wrong in (["--to=otlp=https://x"], ["--to=other=x"], []):
        assert report("ship", folder, *wrong, folder=tmp_path).status == 2
    assert report("ship", tmp_path / "none", "--to=folder=x", folder=tmp_path).status == 1


def test_a_queue_without_room_drops_the_oldest(folder: Path, receiver: Receiver, tmp_path: Path) -> None:
    to = [f"--to=pyroscope={receiver.url}", "--queue-size=1"]
    receiver.answers = [503]
    done = _ship(folder, *to, queue=tmp_path / "queue")
    assert done.status == 1 and "is full" in done.err
    assert _ship(folder, *to, queue=tmp_path / "queue").status == 0
    assert len(receiver.got) == 1


def test_killed_at_any_step_it_loses_nothing(folder: Path, receiver: Receiver, tmp_path: Path) -> None:
    """Each time it is killed at another moment; what was sent twice has the same identity and the same content."""
    words = ["ship", str(folder / "profiles"), "--every=1s", f"--queue={tmp_path / 'queue'}"]
    for step in range(8):
        shipper = subprocess.Popen([str(COMMAND), *words, f"--to=pyroscope={receiver.url}"], cwd=folder)
        try:
            shipper.wait(0.005 * 2**step)
        except subprocess.TimeoutExpired:
            shipper.kill()
            shipper.wait()
    assert _ship(folder, f"--to=pyroscope={receiver.url}", queue=tmp_path / "queue").status == 0
    windows: dict[str, bytes] = {}
    for _, _, body in receiver.got:
        sample = json.loads(body)["series"][0]["samples"][0]
        profile = base64.b64decode(sample["rawProfile"])
        assert windows.setdefault(sample["ID"], profile) == profile
    sums = sum(_pprof(profile).get("stays", [0] * 4)[1] for profile in windows.values())
    assert sums == pytest.approx(_expected(folder)["stays"], rel=1e-3)
