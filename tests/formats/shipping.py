"""A server for `nthbyte ship`, and what must arrive there."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import http.server
import json
import re
import ssl
import threading
import urllib.parse
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


class Proxy:
    """A proxy that passes on what comes with a password, and keeps the beginning of each request."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.got: list[str] = []
        self.loop = asyncio.new_event_loop()
        server = asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.server = self.loop.run_until_complete(server)
        self.place = f"127.0.0.1:{self.server.sockets[0].getsockname()[1]}"
        self.url = f"{'https' if tls else 'http'}://me:open%20sesame@{self.place}"
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *headers = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, version = first.split()
        self.got.append(f"{method} {target}")
        # `me:open sesame` in base64.
        if "proxy-authorization: Basic bWU6b3BlbiBzZXNhbWU=" not in headers:
            writer.write(b"HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
            writer.close()
            return
        url = urllib.parse.urlsplit(f"//{target}" if method == "CONNECT" else target)
        others = await asyncio.open_connection(url.hostname, url.port)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Yes\r\n\r\n")
        else:
            headers = [line for line in headers if not line.startswith("proxy-")]
            others[1].write("\r\n".join([f"{method} {url.path} {version}", *headers]).encode())
        await asyncio.gather(_pass_on(reader, others[1]), _pass_on(others[0], writer))

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def _end(self) -> None:
        self.server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while some := await reader.read(1 << 16):
            writer.write(some)
            await writer.drain()
    except OSError:
        pass
    writer.close()


def signature(
    method: str, path: str, headers: Mapping[str, str], body: bytes, secret: str
) -> tuple[str, str]:
    """The signature of version 4 that a request has, and the one that it should have."""
    pattern = (
        r"AWS4-HMAC-SHA256 Credential=\w+/(\d+)/([\w-]+)/s3/aws4_request,SignedHeaders=(\S+),Signature=(\w+)"
    )
    match = re.fullmatch(pattern, headers["authorization"])
    assert match, headers["authorization"]
    day, region, names, had = match.groups()
    digest = hashlib.sha256(body).hexdigest()
    assert headers["x-amz-content-sha256"] == digest and headers["x-amz-date"].startswith(day)
    # All but those of the connection must be signed.
    assert set(headers) - set(names.split(";")) <= {"authorization", "content-length"}
    lines = "".join(f"{name}:{headers[name].strip()}\n" for name in names.split(";"))
    path = urllib.parse.quote(urllib.parse.unquote(path), safe="/-_.~")
    request = f"{method}\n{path}\n\n{lines}\n{names}\n{digest}"
    scope = f"{day}/{region}/s3/aws4_request"
    request = hashlib.sha256(request.encode()).hexdigest()
    key = f"AWS4{secret}".encode()
    text = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{request}"
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    return had, key.hex()


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
