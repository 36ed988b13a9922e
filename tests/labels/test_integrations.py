"""The ready labels of web frameworks and task queues: known bytes by route, from many requests at a time."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import harness
from formats.installed import missing
from harness import Interpreter, summary
from labels.test_labels import LARGE, PROGRAM, made
from processes import family, servers

PACKAGES = harness.REPOSITORY / "build" / "labels"
# The frameworks need it.
OLDEST = (3, 10)

pytestmark = pytest.mark.slow


def environment(interpreter: Interpreter) -> dict[str, str]:
    """Returns the variables by which an interpreter finds the frameworks, and the nthbyte that is tested."""
    version = ".".join(map(str, interpreter.python_version))
    if interpreter.python_version < OLDEST:
        pytest.skip(f"the frameworks do not support Python {version}")
    packages = PACKAGES / f"{interpreter.about[0]}{version}"
    if not packages.exists():
        missing("the frameworks are missing: make build/labels/ready")
    return {"PYTHONPATH": f"{harness.SITE}:{packages}"}


SERVE = """
import threading, time, urllib.request

def ask(address, paths):
    def one(path):
        with urllib.request.urlopen(address + path) as answer:
            return answer.read()
    with ThreadPoolExecutor(16) as clients:
        list(clients.map(one, paths))
"""

FASTAPI = """
import itertools
import uvicorn
from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI
from fastapi.responses import StreamingResponse
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.routing import Mount
from nthbyte.integrations.asgi import Labels

def sync_dependency():
    make("/items/{item}"); yield 1; make("/items/{item}")

async def dependency():
    # A label of its own, inside of the request's.
    with nthbyte.label(endpoint="dependency"):
        make("dependency")
    make("/sync/{item}"); yield 1; make("/sync/{item}")

def labelled_sync_dependency():
    # FastAPI enters and leaves it in two copies of the context: the endpoint does not see it, and no request fails.
    with nthbyte.label(endpoint="sync dependency"):
        make("sync dependency"); yield 1; make("/traps/{item}")

inner = FastAPI()
app = FastAPI()
router = APIRouter(prefix="/api")

@app.get("/items/{item}")
async def items(item: int, tasks: BackgroundTasks, of=Depends(sync_dependency)):
    make("/items/{item}")
    await asyncio.sleep(0.001)
    make("/items/{item}")
    tasks.add_task(make, "/items/{item}")

@app.get("/sync/{item}")
def sync(item: str, of=Depends(dependency)):
    make("/sync/{item}"); time.sleep(0.001); make("/sync/{item}")

async def part(number):
    await asyncio.sleep(0.001 * (number % 3)); make("/api/gather")

@router.get("/gather")
async def gather():
    await asyncio.gather(*(part(number) for number in range(20)))
    await asyncio.to_thread(make, "/api/gather")
    await asyncio.get_running_loop().run_in_executor(None, make, "/api/gather")

@app.get("/stream/{item}")
async def stream(item: int):
    def body():
        for _ in range(3):
            make("/stream/{item}"); yield b"x"
    return StreamingResponse(body())

@app.get("/traps/{item}")
async def traps(item: int, of=Depends(labelled_sync_dependency)):
    make("/traps/{item}")
    with nthbyte.label(endpoint="ended"):
        make("ended")
        # It is read after the block has ended.
        def body():
            make("/traps/{item}"); yield b"x"
        @nthbyte.label(endpoint="body")
        def labelled_body():
            make("body"); yield b"x"
        return StreamingResponse(itertools.chain(body(), labelled_body()))

@inner.get("/deep/{item}")
async def deep(item: int):
    make("/inner/deep/{item}")

class Other(BaseHTTPMiddleware):
    async def dispatch(self, request, call_next):
        return await call_next(request)

app.include_router(router)
app.mount("/inner", inner)
app.add_middleware(Other)
app.add_middleware(Labels)

server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", loop="asyncio"))
server.install_signal_handlers = lambda: None
thread = threading.Thread(target=server.run)
thread.start()
while not server.started:
    time.sleep(0.01)
address = "http://127.0.0.1:%d" % server.servers[0].sockets[0].getsockname()[1]
paths = ["/items/1", "/items/2", "/sync/3", "/api/gather", "/stream/4", "/inner/deep/5", "/traps/6"]
ask(address, [paths[number % 7] for number in range(182)])
server.should_exit = True
thread.join()
"""

STARLETTE = """
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Mount, Route
from nthbyte.integrations.asgi import Labels

async def items(request):
    make("/items/{item}")
    await asyncio.sleep(0.001)
    await asyncio.to_thread(make, "/items/{item}")
    return PlainTextResponse("x", background=BackgroundTask(make, "/items/{item}"))

def sync(request):
    make("/api/sync/{item:int}"); time.sleep(0.001); make("/api/sync/{item:int}")
    return PlainTextResponse("x")

async def stream(request):
    async def body():
        for _ in range(3):
            make("/stream/{item}"); yield b"x"
            await asyncio.sleep(0)
    return StreamingResponse(body())

app = Starlette(routes=[
    Route("/items/{item}", items), Route("/stream/{item}", stream),
    Mount("/api", routes=[Route("/sync/{item:int}", sync)]),
])
app.add_middleware(Labels)

server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", loop="asyncio"))
server.install_signal_handlers = lambda: None
thread = threading.Thread(target=server.run)
thread.start()
while not server.started:
    time.sleep(0.01)
address = "http://127.0.0.1:%d" % server.servers[0].sockets[0].getsockname()[1]
paths = ["/items/1", "/api/sync/3", "/stream/4"]
ask(address, [paths[number % 3] for number in range(90)])
server.should_exit = True
thread.join()
"""

FLASK = """
from flask import Flask, Response
from nthbyte.integrations import flask as integration

app = Flask(__name__)
integration.label(app)

@app.get("/items/<int:item>")
def items(item):
    make("/items/<int:item>", 2)
    return "x"

@app.get("/stream/<name>")
def stream(name):
    def body():
        for _ in range(3):
            make("/stream/<name>"); yield b"x"
    return Response(body())

@app.errorhandler(404)
def not_found(error):
    make("(no route)")
    return "none", 404

def request(number):
    client = app.test_client()
    for path in ["/items/7", "/stream/a", "/nothing/9"]:
        with client.get(path) as response:
            make("[no label]")
            response.get_data()
with ThreadPoolExecutor(8) as pool:
    list(pool.map(request, range(20)))
"""

AIOHTTP = """
from aiohttp import ClientSession, web
from nthbyte.integrations import aiohttp as integration

async def items(request):
    make("/items/{item}"); await asyncio.sleep(0.001); make("/items/{item}")
    return web.Response(text="x")

async def main():
    app = web.Application(middlewares=[integration.labels])
    app.router.add_get("/items/{item}", items)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    async with ClientSession() as session:
        async def ask(number):
            async with session.get(f"http://127.0.0.1:{port}/items/{number}") as answer:
                await answer.read()
                make("[no label]")
        await asyncio.gather(*(ask(number) for number in range(60)))
    await runner.cleanup()
asyncio.run(main())
"""

CELERY = """
import logging
from celery import Celery
from celery.contrib.testing.worker import start_worker
from nthbyte.integrations import celery as integration

app = Celery("tasks", broker="memory://", backend="cache+memory://")
integration.label()

@app.task(name="tasks.one")
def one():
    make("tasks.one", 2)
    two.apply()
    make("tasks.one")

@app.task(name="tasks.two")
def two():
    make("tasks.two")
    raise ValueError("it fails")

one.apply()
make("[no label]")
logging.disable(logging.CRITICAL)
with start_worker(app, pool="threads", concurrency=4, perform_ping_check=False):
    asked = [work.delay() for work in [one, two] * 10]
    make("[no label]")
    for each in asked:
        each.get(timeout=300, propagate=False)
make("[no label]")
"""

GENERIC = """
from nthbyte.integrations.wsgi import Labels

def body(work):
    for _ in range(2):
        make(work); yield b"x"

class Closed:
    def __init__(self, work):
        self.work = work
    def __iter__(self):
        return body(self.work)
    def close(self):
        make(self.work)

app = Labels(lambda environ, start_response: Closed(environ["work"]))
for path, work in [("/a/17/b", "/a/{}/b"), ("/", "/"), ("/x2", "/{}")]:
    answer = app({"PATH_INFO": path, "REQUEST_METHOD": "GET", "work": work}, None)
    for _ in answer:
        make("[no label]")
    answer.close()
"""

DASK = """
import pathlib, sys

# What Dask sends to workers is found by its name.
sys.path.insert(0, ".")
pathlib.Path("work.py").write_text('''
import asyncio, time
from __main__ import make

def square(number):
    make("square"); time.sleep(0.001); make("square")
    return number * number

async def wait(number):
    make("wait"); await asyncio.sleep(0.001); make("wait")

def part(number):
    make("part-of")
''')
import nthbyte.integrations.dask
from distributed import Client, LocalCluster
from work import part, square, wait

with LocalCluster(
    n_workers=1, threads_per_worker=4, processes=False, dashboard_address=None
) as cluster, Client(cluster) as client:
    client.register_plugin(nthbyte.integrations.dask.Labels())
    squares, waits = client.map(square, range(40)), client.map(wait, range(20))
    assert client.submit(sum, squares).result() == sum(number * number for number in range(40))
    client.gather(waits)
    client.get({("part-of", number): (part, number) for number in range(7)}, [("part-of", 3), ("part-of", 5)])
    make("[no label]")
"""

# No function of asyncio runs this loop.
UVLOOP = """
import uvloop

async def leaf(task):
    make(task); await asyncio.sleep(0.001); make(task)

async def main():
    # Where the loop has its task is found in the first samples after a coroutine was seen.
    kept = [str(number) for number in range(200_000)]
    make("main")
    await asyncio.gather(*(asyncio.create_task(leaf(f"task {number}"), name=f"task {number}") for number in range(9)))
    make("main")

loop = uvloop.new_event_loop()
loop.run_until_complete(main())
make("[no label]")
"""

# Each greenlet has a context of its own, which is empty at first.
GREENLETS = """
import greenlet

def steps(name):
    make("[no label]")
    with nthbyte.label(task=name):
        for _ in range(3):
            make(name); greenlet.getcurrent().parent.switch(); make(name)
    make("[no label]")

with nthbyte.label(task="outer"):
    running = [greenlet.greenlet(steps) for _ in range(5)]
    for turn in range(4):
        for number, one in enumerate(running):
            one.switch(*[f"greenlet {number}"][turn:])
            make("outer")
make("[no label]")
"""

PROGRAMS = {
    "fastapi": (SERVE + FASTAPI, "endpoint"),
    "starlette": (SERVE + STARLETTE, "endpoint"),
    "greenlet": (GREENLETS, "task"),
    "flask": (FLASK, "endpoint"),
    "aiohttp": (AIOHTTP, "endpoint"),
    "celery": (CELERY, "task"),
    "dask": (DASK, "task"),
    "uvloop": (UVLOOP, "task"),
    "wsgi": (GENERIC, "endpoint"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_request_has_its_route(name: str, interpreter: Interpreter, tmp_path: Path) -> None:
    found = environment(interpreter)
    if name in ("fastapi", "dask", "uvloop") and interpreter.is_pypy:
        pytest.skip("pydantic's core, psutil and uvloop have no wheel for PyPy")
    body, key = PROGRAMS[name]
    size, every = LARGE
    (tmp_path / "program.py").write_text(PROGRAM.replace("SIZE", str(size)) + body)
    words = ["run", "--every", every, "-o", "p.nthb", "program.py"]
    interpreter.nthbyte(*words, folder=tmp_path, environment=found).ok()
    truth = json.loads((tmp_path / "truth.json").read_text())
    assert len(truth) > 1
    check(made(tmp_path / "p.nthb", key, size), truth, tmp_path / "p.nthb")


def check(found: Counter[str], truth: dict[str, int], profile: Path) -> None:
    """Checks that each label has what was made for it. Samples that a busy machine loses are counted with others."""
    if summary(profile)["lost"] == 0:
        assert found == truth
    assert set(found) == set(truth)
    # What has another's label is missing here.
    assert all(found[label] >= count for label, count in truth.items()), (found, truth)


SITE = """
import os, time
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import include, path

settings.configure(
    ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="x", MIDDLEWARE=["nthbyte.integrations.django.labels"],
)

kept = [None]

def make():
    kept[0] = [None] * (SIZE // 8)

def items(request, pk):
    make(); time.sleep(0.001); make()
    return HttpResponse(str(os.getpid()))

def stream(request, name):
    def body():
        make(); yield str(os.getpid())
        make(); make()
    return StreamingHttpResponse(body())

urlpatterns = [path("items/<int:pk>/", items), path("api/", include([path("stream/<name>/", stream)]))]
wsgi = get_wsgi_application()
"""


def test_django_under_gunicorn_with_threads(interpreter: Interpreter, tmp_path: Path) -> None:
    found = environment(interpreter)
    size, every = LARGE
    (tmp_path / "app.py").write_text(SITE.replace("SIZE", str(size)))
    words = ["-m", "gunicorn", "--workers", "1", "--threads", "4", "--bind", "127.0.0.1:0"]
    words += ["--timeout", str(servers.LIMIT), "--graceful-timeout", str(servers.LIMIT), "app:wsgi"]
    with servers.running(words, tmp_path, interpreter, every, found) as process:
        address = servers.address(process, tmp_path)

        def ask(number: int) -> bytes:
            page = ["items", "api/stream"][number % 2]
            with urllib.request.urlopen(f"{address}/{page}/{number}/", timeout=servers.LIMIT) as answer:
                return bytes(answer.read())

        with ThreadPoolExecutor(8) as clients:
            answers = Counter(clients.map(ask, range(60)))
    assert len(answers) == 1
    [worker] = [
        path for path in family.parts_of(tmp_path / "app.nthb") if str(int(next(iter(answers)))) in path.name
    ]
    expected = {"/items/<int:pk>/": 60, "/api/stream/<name>/": 90}
    check(made(worker, "endpoint", size), expected, worker)
