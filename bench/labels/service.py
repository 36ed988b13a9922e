"""Measures what labels cost a service under load: CPU seconds for a number of requests, with and without them.

It needs FastAPI and uvicorn beside nthbyte. Each round starts the service three times: alone, recorded, and recorded
with labels, another one first each time. It prints the least and the median of each, and the quotients of the last two.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

REQUESTS = 1_500
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 5

SERVICE = """
import asyncio, json, sys, time
import uvicorn
from fastapi import FastAPI

app = FastAPI()

@app.get("/items/{item}")
async def items(item: int):
    rows = [{"number": number, "name": f"item {item}", "tags": ["a", "b"]} for number in range(200)]
    await asyncio.sleep(0)
    return json.loads(json.dumps(rows))

@app.get("/sync/{item}")
def sync(item: int):
    return {"sum": sum(range(2_000)), "item": item}

@app.get("/cpu")
async def cpu():
    return time.process_time()

if "labels" in sys.argv:
    from nthbyte.integrations.asgi import Labels
    app.add_middleware(Labels)

config = uvicorn.Config(app, port=0, log_level="error")
server = uvicorn.Server(config)

async def main():
    task = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    await task

asyncio.run(main())
"""


def get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return bytes(answer.read())


def cpu_seconds(folder: Path, nthbyte: bool, labels: bool) -> float:
    """The CPU time of the service for all requests."""
    program = folder / "service.py"
    program.write_text(SERVICE)
    run = ["-m", "nthbyte", "run", "-f", "-o", str(folder / "p.nthb")] if nthbyte else []
    words = [sys.executable, *run, str(program), *(["labels"] if labels else [])]
    errors = folder / "errors.txt"
    with errors.open("w") as file:
        service = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=file, text=True)
    assert service.stdout is not None
    try:
        port = service.stdout.readline().strip()
        if not port:
            # Without this, clients would ask port 80.
            raise SystemExit(f"the service did not start:\n{errors.read_text()}")
        address = f"http://127.0.0.1:{port}"
        paths = [f"{address}/{('items', 'sync')[at % 2]}/{at % 50}" for at in range(REQUESTS)]
        with ThreadPoolExecutor(8) as clients:
            list(clients.map(get, paths[:100]))
            before = float(get(f"{address}/cpu"))
            list(clients.map(get, paths))
        return float(get(f"{address}/cpu")) - before
    finally:
        service.terminate()
        service.wait(60)


SERVICES = {
    "plain": (False, False),
    "recorded": (True, False),
    "recorded, with labels": (True, True),
}


def main() -> None:
    seconds: dict[str, list[float]] = {name: [] for name in SERVICES}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(ROUNDS):
            names = list(SERVICES)
            for name in names[turn % 3 :] + names[: turn % 3]:
                seconds[name].append(cpu_seconds(Path(folder), *SERVICES[name]))
                time.sleep(0.1)
    for which, of_all in (("least", min), ("median", median)):
        found = {name: of_all(times) for name, times in seconds.items()}
        for name, value in found.items():
            print(f"{which}, {name}: {value:.3f} s of CPU for {REQUESTS} requests")
        print(f"{which}, labels: × {found['recorded, with labels'] / found['recorded']:.3f}")


if __name__ == "__main__":
    main()
