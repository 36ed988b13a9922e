"""Labels for web frameworks, task queues, Dask, Ray, Spark and asyncio: who asked for it.

=========  ======================================================================================
FastAPI    ``app.add_middleware(nthbyte.integrations.asgi.Labels)``
Starlette  the same
ASGI       ``app = nthbyte.integrations.asgi.Labels(app)``
Django     ``MIDDLEWARE = ["nthbyte.integrations.django.labels", ...]``
Flask      ``nthbyte.integrations.flask.label(app)``
WSGI       ``app = nthbyte.integrations.wsgi.Labels(app)``
aiohttp    ``web.Application(middlewares=[nthbyte.integrations.aiohttp.labels])``
Celery     ``nthbyte.integrations.celery.label()``
Dask       ``client.register_plugin(nthbyte.integrations.dask.Labels())``
Ray        ``ray.init(runtime_env={"worker_process_setup_hook": "nthbyte.integrations.ray.label"})``
Spark      ``SparkSession.builder.config("spark.python.daemon.module", "nthbyte.integrations.spark")``
asyncio    ``nthbyte.integrations.asyncio.label()``
=========  ======================================================================================

Each module is imported by itself, and imports its framework. Requests have the labels ``endpoint``, the template of the
route (``/items/{item_id}``), and ``method``; tasks of Celery, Dask, Ray, Spark and asyncio
have ``task``.
"""

from __future__ import annotations

NO_ROUTE = "(no route)"
"""The endpoint of requests that no route takes."""


def template(path: str) -> str:
    """Returns a path of which no route is known, with ``{}`` for each part that has a digit: there may be many."""
    parts = path.split("/")
    return "/".join("{}" if any(sign.isdigit() for sign in part) else part for part in parts) or "/"
