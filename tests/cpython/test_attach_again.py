"""One process that is attached to again and again: nothing is lost, and nothing stays."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

import harness
from cpython.attaching import running

COLLECTS = """
import gc, sys
gc.disable()
for line in sys.stdin:
    print(gc.collect(), flush=True)
"""


def test_an_attachment_leaves_nothing_for_the_collector(cpython: harness.Interpreter, tmp_path: Path) -> None:
    """A program that hardly makes cycles would keep it for long."""
    with running(cpython, COLLECTS, tmp_path) as one:
        found = []
        for _ in range(3):
            one.nthbyte("attach", "-f", "-o", "a.nthb", "--for", "0", "--timeout", "5min").ok()
            one.say()
            found.append(one.line())
        one.end().ok()
    # The first one imports nthbyte.
    assert found[1:] == ["0", "0"]


# The body is made of small objects, so that there is something to record.
SERVERS = {
    "threads": """
import http.server, threading

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = str(len([str(number) for number in range(2000)])).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
input()
server.shutdown()
print("end")
""",
    "asyncio": """
import asyncio, sys

async def serve(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    body = str(len([str(number) for number in range(2000)])).encode()
    writer.write(b"HTTP/1.0 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n%s" % (len(body), body))
    await writer.drain()
    writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, ended.set)
    await ended.wait()
    asyncio.get_running_loop().remove_reader(0)
    server.close()

asyncio.run(main())
print("end")
""",
}

CLIENT = """
import sys, threading, urllib.request

def load():
    while not ended.is_set():
        with urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/", timeout=300) as answer:
            good.append(answer.read() == b"2000")

ended, good = threading.Event(), []
threads = [threading.Thread(target=load) for _ in range(3)]
for one in threads:
    one.start()
input()
ended.set()
for one in threads:
    one.join()
print(all(good), threading.excepthook is threading.__excepthook__, len(good))
"""

# How often a loaded server is attached to. docs/guide/attach.md has the figures of 1,000 times, which `-s` prints.
ATTACHMENTS = int(os.environ.get("NTHBYTE_ATTACHMENTS", "300" if harness.IS_ALL else "20"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", SERVERS)
def test_a_loaded_server_loses_no_request(cpython: harness.Interpreter, tmp_path: Path, kind: str) -> None:
    """And keeps nothing of an attachment: no thread, no descriptor, no memory."""
    with running(cpython, SERVERS[kind], tmp_path) as server:
        port = server.line()

        def now(what: str) -> int:
            return len(os.listdir(f"/proc/{server.number}/{what}"))

        def memory() -> int:
            """The resident memory in bytes, without files."""
            status = Path(f"/proc/{server.number}/status").read_text()
            return int(status.partition("RssAnon:")[2].split()[0]) << 10

        before = now("fd"), now("task")
        client = subprocess.Popen(
            cpython.words(["-c", CLIENT, port], tmp_path),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        seen = []
        for _ in range(ATTACHMENTS):
            server.nthbyte("attach", "-f", "-o", "a.nthb", "--for", "0").ok()
            seen.append(memory())
        out, err = client.communicate("\n", 600)
        *said, requests = out.split()
        assert (said, err) == (["True", "True"], "") and int(requests) > 0
        # The last requests' end in a moment.
        while (now("fd"), now("task")) != before:
            assert server.process.poll() is None
            time.sleep(0.05)
        mappings = Path(f"/proc/{server.number}/maps").read_text().count("\n")
        done = server.end("\n").ok()
    assert (done.out, done.err) == ("end\n", "")
    first, last = max(seen[:10]), max(seen[-10:])
    print(
        f"{cpython}, {kind}: {ATTACHMENTS} attachments, {requests} requests; {before} descriptors and threads,"
    )
    print(f"{mappings} mappings; MB: {[round(one / 1e6, 2) for one in seen[:: max(ATTACHMENTS // 20, 1)]]}")
    assert last - first < 2_000_000 and mappings < 1000
