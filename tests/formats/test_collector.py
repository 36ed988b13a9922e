"""``nthbyte ship`` through an OpenTelemetry Collector, by HTTP and by gRPC: what it passes on is what the summary says.

``make test-collector`` builds it first, from its released modules.
"""

from __future__ import annotations

import contextlib
import gzip
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from formats.otlp import by_function, decode, kinds, resource
from formats.shipping import Receiver, compare, ship
from harness import COMMAND, REPOSITORY

COLLECTOR = REPOSITORY / "build" / "collector" / "collector"
CONFIGURATION = """
receivers:
  otlp:
    protocols:
      http: {{endpoint: 127.0.0.1:{http}}}
      grpc: {{endpoint: 127.0.0.1:{grpc}}}
exporters:
  otlphttp:
    profiles_endpoint: {behind}/passed-on
    sending_queue: {{enabled: false}}
    retry_on_failure: {{enabled: false}}
service:
  pipelines:
    profiles: {{receivers: [otlp], exporters: [otlphttp]}}
"""

pytestmark = pytest.mark.skipif(not COLLECTOR.exists(), reason="no Collector: make build/collector/collector")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Collector:
    """A Collector that passes on what it gets, before it answers."""

    def __init__(self, folder: Path, behind: str) -> None:
        self.http, self.grpc = _free_ports(2)
        self.configuration = folder / "collector.yaml"
        self.configuration.write_text(CONFIGURATION.format(http=self.http, grpc=self.grpc, behind=behind))
        self.log = folder / "collector.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it, and waits until it listens."""
        words = [COLLECTOR, f"--config={self.configuration}", "--feature-gates=service.profilesSupport"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)
        for port in (self.http, self.grpc):
            while True:
                assert self.process.poll() is None, self.log.read_text()
                with contextlib.suppress(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                time.sleep(0.05)

    def stop(self) -> None:
        """Ends it, if it runs."""
        if self.process:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            self.process.wait()
            self.process = None

    def address(self, way: str) -> str:
        """As ``--to`` takes it."""
        return f"--to={way}=http://127.0.0.1:{self.http if way == 'otlp' else self.grpc}"


@pytest.fixture
def collector(receiver: Receiver, tmp_path: Path) -> Iterator[Collector]:
    made = Collector(tmp_path, receiver.url)
    yield made
    made.stop()


def _check(receiver: Receiver, folder: Path) -> None:
    """All windows that arrived are the recording."""
    sums: Counter[str] = Counter()
    seen: set[bytes] = set()
    for path, headers, body in receiver.got:
        assert path == "/passed-on"
        message = decode(gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body)
        assert kinds(message) == ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]
        found = resource(message)
        assert (found["service.name"], found["env"]) == ("web", "prod")
        # What was sent once more has the same identity.
        first = message.resource_profiles[0].scope_profiles[0].profiles[0].profile_id
        if first not in seen:
            sums.update(by_function(message, "alloc_space"))
        seen.add(first)
    assert len(seen) >= 3
    compare(sums, folder)


@pytest.mark.parametrize("way", ["otlp", "otlp-grpc"])
def test_through_a_collector(
    folder: Path,
    receiver: Receiver,
    collector: Collector,
    tmp_path: Path,
    way: str,
) -> None:
    queue = tmp_path / "queue"
    # It is down.
    done = ship(folder, collector.address(way), queue=queue)
    assert done.status == 1 and "takes nothing" in done.err and receiver.got == []
    # It is up, and its backend is not.
    collector.start()
    receiver.answers = [503, 503]
    assert ship(folder, collector.address(way), queue=queue).status == 1
    receiver.answers = []
    assert ship(folder, collector.address(way), queue=queue).status == 0
    _check(receiver, folder)


@pytest.mark.parametrize("way", ["otlp", "otlp-grpc"])
def test_a_collector_that_is_slow_and_restarted(
    folder: Path,
    receiver: Receiver,
    collector: Collector,
    tmp_path: Path,
    way: str,
) -> None:
    """One shipper meets it stopped, then gone, then there again; nobody tells it."""
    collector.start()
    assert collector.process
    collector.process.send_signal(signal.SIGSTOP)
    words = ["ship", str(folder / "profiles"), "--every=1s", f"--queue={tmp_path / 'queue'}"]
    shipper = subprocess.Popen([str(COMMAND), *words, collector.address(way)], stderr=subprocess.PIPE)
    try:
        waiting = tmp_path / "queue"
        while not list(waiting.glob("*/*.window")):
            time.sleep(0.05)
        # It has connected by now, or soon: the kernel answers for the stopped process.
        time.sleep(0.5)
        collector.process.kill()
        collector.process.wait()
        assert receiver.got == []
        collector.start()
        while list(waiting.glob("*/*.window")):
            assert shipper.poll() is None
            time.sleep(0.05)
    finally:
        shipper.terminate()
        assert shipper.stderr
        said = shipper.stderr.read().decode()
        shipper.wait()
    assert said.count("takes nothing") == 1, said
    _check(receiver, folder)
