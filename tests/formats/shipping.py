"""A server for `nthbyte ship`, and what must arrive there."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness import report


class Receiver:
    """A server that answers what ``answers`` has, then 200, and keeps what it got."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
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

            do_PUT = do_POST

            def log_message(self, *words: object) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, *words: object) -> None:
                """Says nothing of clients that go away."""

        self.server = Server(("127.0.0.1", 0), Handler)
        if tls:
            # The handshake is in the thread of the connection: a client that refuses the certificate ends no other.
            self.server.socket = tls.wrap_socket(
                self.server.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def ship(folder: Path, *words: str, queue: Path) -> Any:
    """Ships what there is, in windows of a second."""
    options = ["--once", "--every=1s", f"--queue={queue}"]
    return report("ship", folder / "profiles", *options, *words, folder=folder)


def expected(folder: Path) -> dict[str, float]:
    """The bytes of each function, by the summary."""
    words = ["summary", folder / "profiles", "--all-frames", "--json"]
    rows = json.loads(report(*words, folder=folder).ok().out)["rows"]
    sums: dict[str, float] = {}
    for row in rows:
        name = row["name"].split(".")[0]
        sums[name] = sums.get(name, 0) + row["self_bytes"]["estimate"]
    return sums


def compare(sums: Mapping[str, int], folder: Path) -> None:
    """All windows together are the recording: each row of a window is rounded to a whole number."""
    wanted = expected(folder)
    for name in ("stays", "passes"):
        assert sums[name] == pytest.approx(wanted[name], rel=1e-3)
    assert sum(sums.values()) == pytest.approx(sum(wanted.values()), rel=1e-3)
