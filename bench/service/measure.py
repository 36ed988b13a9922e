"""What it costs to have everything on in a service under load, beside `nthbyte run` alone, ddtrace and Pyroscope.

    python bench/service/measure.py FOLDER --minutes 40

Several copies of one service (`service.py`) run at once, and get the same requests: each second some, another copy
first each time. Compared is the CPU time of their processes, as the system counts it, after a warm-up. FOLDER gets the
profiles, and `measured.json` each minute, so that a run that is ended early is not lost. It needs fastapi, uvicorn,
ddtrace, pyroscope-io and nthbyte in the environment of this Python.

- `plain`: the service alone
- `run`, `run again`: under `nthbyte run`; two of them say how much chance there is
- `on`: NTHBYTE=on, a ring (`--keep`), tags, labels of each request, who holds what, a limit that the black box watches
- `ready`: the same, but prepared (NTHBYTE=ready), and then recorded by `nthbyte attach`
- `ddtrace`, `pyroscope`: their profilers of memory

`nthbyte ship` runs beside them, sends the windows of `on` and `ready` to a server here, and is counted for itself.
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import random
import resource
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

HERE = Path(__file__).resolve().parent
NTHBYTE = [sys.executable, "-m", "nthbyte"]
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
KEEP = "10min,20MB"
# Of addresses: far away, but watched.
LIMIT = 8 << 30
WARM_UP = 600
# Seconds after the end in which `ship` sends the last windows.
SETTLE = 40
PAIRS = [
    ("run", "plain"),
    ("on", "run"),
    ("ready", "run"),
    ("run again", "run"),
    ("on", "plain"),
    ("ready", "plain"),
]
PAIRS += [("ddtrace", "plain"), ("pyroscope", "plain")]


class Service:
    """One copy, which runs."""

    def __init__(self, name: str, words: list[str], folder: Path, **environment: str) -> None:
        self.name = name
        own = {key: value for key, value in os.environ.items() if not key.startswith(("NTHBYTE", "PYTHON"))}
        with (folder / f"{name}.errors").open("w") as errors:
            self.process = subprocess.Popen(
                words,
                cwd=folder,
                env={**own, **environment},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT)),
            )
        assert self.process.stdout
        port = self.process.stdout.readline()
        if not port:
            raise SystemExit(f"{name} did not start: {(folder / f'{name}.errors').read_text()}")
        self.connection = socket.create_connection(("127.0.0.1", int(port)))
        self.connection.settimeout(60)

    def ask(self, request: bytes) -> None:
        """Sends a request, and reads the answer."""
        self.connection.sendall(request)
        answer = b""
        while True:
            head, blank, body = answer.partition(b"\r\n\r\n")
            if blank:
                (length,) = (
                    line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
                )
                if len(body) >= int(length.split(b":")[1]):
                    assert b" 200 " in head[:16], answer
                    return
            more = self.connection.recv(1 << 16)
            if not more:
                raise SystemExit(f"{self.name} has closed the connection")
            answer += more

    def cpu(self) -> float:
        """Seconds of CPU time, of all its threads."""
        return cpu_of(self.process.pid)

    def rss(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Receiver(http.server.BaseHTTPRequestHandler):
    """Takes what Pyroscope and `nthbyte ship` send."""

    received: ClassVar[dict[str, int]] = {}

    def do_POST(self) -> None:
        """Counts a message by the folder that it is sent to."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        kind = "pyroscope" if self.path.startswith("/pyroscope") else "ship"
        self.received[kind] = self.received.get(kind, 0) + 1
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Says nothing."""


def requests(seed: int) -> list[bytes]:
    """Orders of different sizes, and questions; made before the measurement, so that the driver has little to do."""
    chance = random.Random(seed)
    made = []
    for _ in range(50):
        rows = [
            {
                "number": number,
                "customer": f"customer {chance.randrange(40)}",
                "prices": [chance.random() for _ in range(chance.randrange(2, 8))],
            }
            for number in range(chance.randrange(200, 600))
        ]
        body = json.dumps(rows).encode()
        head = f"POST /orders HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        made.append(f"{head}\r\n\r\n".encode() + body)
        made.append(f"GET /customers/customer%20{chance.randrange(40)} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    return made


def started(folder: Path, server: str) -> list[Service]:
    """All services, in the order of their names."""
    python, service = [sys.executable], str(HERE / "service.py")
    tags = "service:web,env:prod,version:41"
    everything = {"NTHBYTE_OUTPUT": f"{folder}/profiles/on.nthb", "NTHBYTE_TAGS": tags, "NTHBYTE_KEEP": KEEP}
    found = [
        Service("plain", [*python, service, "plain"], folder),
        Service("run", [*NTHBYTE, "run", "-o", "run.nthb", service, "plain"], folder),
        Service("run again", [*NTHBYTE, "run", "-o", "again.nthb", service, "plain"], folder),
        Service("on", [*python, service, "labels"], folder, NTHBYTE="on", NTHBYTE_HOLDERS="on", **everything),
        Service("ready", [*python, service, "labels"], folder, NTHBYTE="ready"),
        Service("ddtrace", [*python, service, "ddtrace"], folder),
        Service("pyroscope", [*python, service, "pyroscope", f"{server}/pyroscope"], folder),
    ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--requests", type=int, default=4, help="for each copy in a second")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    for name in ("profiles", "ddtrace"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    server = f"http://127.0.0.1:{receiver.server_port}"
    services = started(folder, server)
    by_name = {service.name: service for service in services}
    ready = by_name["ready"].process.pid
    attach = [*NTHBYTE, "attach", str(ready), "-o", "profiles/ready.nthb", "--keep", KEEP, "--holders"]
    attach += ["--tags", "service:web,env:prod,version:41", "--method", "ready"]
    attached = subprocess.Popen(attach, cwd=folder, stderr=subprocess.DEVNULL)
    sent = ["ship", "profiles", "--to", f"otlp={server}/ship", "--to", f"folder={folder}/shipped"]
    (folder / "shipped").mkdir(exist_ok=True)
    ship = subprocess.Popen([*NTHBYTE, *sent], cwd=folder, stderr=(folder / "ship.errors").open("w"))
    made = requests(1)
    for at in range(WARM_UP):
        for service in services:
            service.ask(made[at % len(made)])
    minutes: list[dict[str, Any]] = []
    at = 0
    next_second = end_of_minute = time.monotonic()
    end = next_second + 60 * arguments.minutes
    try:
        while time.monotonic() < end:
            turn = at % len(services)
            for service in services[turn:] + services[:turn]:
                for number in range(arguments.requests):
                    service.ask(made[(at * arguments.requests + number) % len(made)])
            at += 1
            if time.monotonic() >= end_of_minute:
                minutes.append(look(services, ship.pid, attached.pid, at * arguments.requests))
                (folder / "measured.json").write_text(json.dumps(minutes))
                end_of_minute += 60
            next_second = max(next_second + 1, time.monotonic() - 1)
            time.sleep(max(0, next_second - time.monotonic()))
    except KeyboardInterrupt:
        pass
    minutes.append(look(services, ship.pid, attached.pid, at * arguments.requests))
    (folder / "measured.json").write_text(json.dumps(minutes))
    for process in (service.process for service in services):
        process.send_signal(signal.SIGTERM)
    for process in (service.process for service in services):
        process.wait(60)
    attached.wait(60)
    time.sleep(SETTLE)
    ship.send_signal(signal.SIGTERM)
    ship.wait(60)
    show(minutes, folder)


def look(services: list[Service], ship: int, attached: int, asked: int) -> dict[str, Any]:
    """CPU time and resident memory of all, now."""
    found = {service.name: [service.cpu(), service.rss()] for service in services}
    return {
        "asked": asked,
        "services": found,
        "ship": cpu_of(ship),
        "attach": cpu_of(attached),
        "received": dict(Receiver.received),
    }


def show(minutes: list[dict[str, Any]], folder: Path) -> None:
    """Prints the quotients with intervals, by minutes drawn again and again, and what became of the samples."""
    first, last = minutes[0], minutes[-1]
    print(f"{last['asked'] - first['asked']:,} requests for each, {len(minutes) - 1} minutes")
    each = {
        name: [
            after["services"][name][0] - before["services"][name][0]
            for before, after in zip(minutes, minutes[1:])
        ]
        for name in last["services"]
    }
    for name, seconds in each.items():
        rss = [one["services"][name][1] / 1e6 for one in minutes]
        shown = ", ".join(f"{rss[len(rss) * at // 8]:.1f}" for at in range(1, 8))
        print(f"{name:10} {sum(seconds):8.2f} s; RSS in MB: {shown}, {rss[-1]:.1f}")
    chance = random.Random(1)
    for one, other in PAIRS:
        drawn = []
        for _ in range(2000):
            at = chance.choices(range(len(minutes) - 1), k=len(minutes) - 1)
            drawn.append(sum(each[one][n] for n in at) / sum(each[other][n] for n in at))
        low, *_, high = statistics.quantiles(drawn, n=40)
        print(f"{one} / {other}: {sum(each[one]) / sum(each[other]):.3f} ({low:.3f}–{high:.3f})")
    print(f"ship: {last['ship'] - first['ship']:.2f} s; received: {last['received']}")
    for profile in ["run.nthb", "again.nthb", "profiles/on.nthb", "profiles/ready.nthb"]:
        done = subprocess.run(
            [*NTHBYTE, "summary", "--json", profile], cwd=folder, capture_output=True, text=True
        )
        found = json.loads(done.stdout)
        print(profile, {key: found[key] for key in ("samples", "lost", "lost_other")}, found.get("notes"))


if __name__ == "__main__":
    main()
