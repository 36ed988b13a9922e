"""Servers with workers, started under nthbyte, asked a fixed number of times over loopback, and stopped."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import harness
from formats.installed import missing
from harness import Interpreter

# Against what hangs only; nothing is expected to come near it.
LIMIT = 300

PYTHON = harness.REPOSITORY / "build" / "processes" / "bin" / "python"

# Each request makes this many objects of a type that nothing else makes.
OBJECTS = 3000

APP = f"""
import os

class Ticket:
    __slots__ = ("number",)

    def __init__(self, number):
        self.number = number

def work():
    return len([Ticket(number) for number in range({OBJECTS})])

def answer():
    assert work() == {OBJECTS}
    return str(os.getpid()).encode()

def wsgi(environ, start_response):
    body = answer()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]

async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({{"type": message["type"] + ".complete"}})
            if message["type"] == "lifespan.shutdown":
                return
    body = answer()
    await send({{"type": "http.response.start", "status": 200, "headers": []}})
    await send({{"type": "http.response.body", "body": body}})
"""

TASKS = (
    APP
    + f"""
from celery import Celery

here = os.path.dirname(os.path.abspath(__file__))
box, results = os.path.join(here, "box"), os.path.join(here, "results")
for folder in (box, results):
    os.makedirs(folder, exist_ok=True)
app = Celery("tasks", broker="filesystem://", backend="file://" + results)
app.conf.broker_transport_options = {{
    "data_folder_in": box, "data_folder_out": box, "control_folder": os.path.join(here, "control"),
}}
app.conf.worker_prefetch_multiplier = 1
# A worker that has not begun by then is killed.
app.conf.worker_proc_alive_timeout = {LIMIT}

@app.task
def ask():
    return answer().decode()
"""
)

ASK_TASKS = f"""
import sys
from tasks import ask

asked = [ask.delay() for _ in range(int(sys.argv[1]))]
print(*[one.get(timeout={LIMIT}, interval=0.05) for one in asked])
"""

# Starts a kernel of Jupyter, as nbclient does, executes cells in it, and prints the number of its process.
START_KERNEL = f"""
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(startup_timeout={LIMIT})
manager.shutdown_wait_time = {LIMIT}
reply = client.execute_interactive(
    "from app import answer", user_expressions={{"number": "[int(answer()) for _ in range(40)][0]"}}, timeout={LIMIT}
)["content"]
assert reply["status"] == "ok", reply
print(reply["user_expressions"]["number"]["data"]["text/plain"], flush=True)
client.stop_channels()
manager.shutdown_kernel()
"""

# Executes cells in a kernel of Jupyter, and prints the number of the process that answered each.
ASK_KERNEL = f"""
import os
import sys
from jupyter_client import BlockingKernelClient

client = BlockingKernelClient(connection_file=os.path.abspath("kernel.json"))
client.load_connection_file()
client.start_channels()
client.wait_for_ready(timeout={LIMIT})
for _ in range(int(sys.argv[1])):
    reply = client.execute_interactive(
        "from app import answer", user_expressions={{"number": "int(answer())"}}, timeout={LIMIT}
    )["content"]
    assert reply["status"] == "ok", reply
    print(reply["user_expressions"]["number"]["data"]["text/plain"])
if "end" in sys.argv:
    client.shutdown()
client.stop_channels()
"""


def python() -> str:
    """Returns the Python that has the servers."""
    if not PYTHON.exists():
        missing("the servers are missing: make build/processes/ready")
    return str(PYTHON)


def variables() -> dict[str, str]:
    """Returns the environment: PYTHONPATH leads to the nthbyte that is tested."""
    return {**os.environ, "PYTHONPATH": str(harness.SITE), "PYTHONDONTWRITEBYTECODE": "1"}


@contextmanager
def running(
    words: list[str],
    folder: Path,
    interpreter: Interpreter | None = None,
    every: str = "4KiB",
    environment: dict[str, str] | None = None,
    is_recorded: bool = True,
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs ``nthbyte run -o app.nthb WORDS``, or the words alone; then asks it to stop, and waits until it has."""
    if is_recorded:
        words = ["-m", "nthbyte", "run", "--every", every, "-o", "app.nthb", *words]
    log = folder / "log"
    interpreter = interpreter or Interpreter(python())
    with open(log, "wb") as out:
        process = subprocess.Popen(
            interpreter.words(words, folder),
            cwd=folder,
            env={**variables(), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
        # The first process alone: it is its matter to stop the workers.
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT)
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            # All have ended.
            pass
        process.wait()


def wait(process: subprocess.Popen[bytes], what: str, holds: Callable[[], bool]) -> None:
    """Waits until a condition holds, while the process runs."""
    end = time.monotonic() + LIMIT
    while not holds():
        assert process.poll() is None, f"it ended before {what}"
        assert time.monotonic() < end, f"still no {what}"
        time.sleep(0.05)


def address(process: subprocess.Popen[bytes], folder: Path) -> str:
    """Returns where a server listens, which it says in its log."""

    def found() -> re.Match[str] | None:
        return re.search(r"http://127\.0\.0\.1:\d+", (folder / "log").read_text())

    wait(process, "address in the log", lambda: found() is not None)
    match = found()
    assert match
    return match[0]


def said(process: subprocess.Popen[bytes], folder: Path, what: str, times: int) -> None:
    """Waits until the log has a text so many times."""
    wait(process, what, lambda: (folder / "log").read_text().count(what) >= times)


def ask(url: str, times: int) -> Counter[int]:
    """Asks a server, each time over a connection of its own; returns how often each process answered."""
    answers: Counter[int] = Counter()
    for _ in range(times):
        with urllib.request.urlopen(url, timeout=LIMIT) as answer:
            answers[int(answer.read())] += 1
    return answers
