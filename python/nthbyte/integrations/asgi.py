"""Labels the requests of an ASGI application: FastAPI, Starlette, Quart, Litestar, or any other."""

from __future__ import annotations

import nthbyte
from nthbyte.integrations import NO_ROUTE, template

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    Application = Callable[[Any, Any, Any], Awaitable[None]]


class Labels:
    """Middleware: all that a request does has its endpoint and method, other middleware, background tasks and body too.

    ``endpoint`` returns the endpoint of an ASGI scope. By default it is the template of the route that FastAPI or
    Starlette would take, such as ``/items/{item_id}``; elsewhere the path, with ``{}`` for each part that has a digit.
    """

    def __init__(self, app: Application, endpoint: Callable[[Any], str] | None = None):
        self._app = app
        self._endpoint = endpoint or route

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Runs the application."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        with nthbyte.label(endpoint=self._endpoint(scope), method=scope.get("method", "WEBSOCKET")):
            await self._app(scope, receive, send)


def route(scope: Any) -> str:
    """Returns the template of a scope's route, if its application has Starlette's routes, or else its path's."""
    routes = getattr(scope.get("app"), "routes", None)
    if routes is None:
        return template(scope["path"])
    return _of_routes(routes, scope) or NO_ROUTE


def _of_routes(routes: Any, scope: Any) -> str | None:
    """The template of the first route that takes the request; failing that, of the first whose path it has."""
    partial: str | None = None
    path: str | None
    for one in routes:
        matches = getattr(one, "matches", None)
        if matches is None:
            continue
        match, child = matches(scope)
        if match.name == "NONE":
            continue
        path = getattr(one, "path", None)
        if path is None:
            path = _of_included(one, scope) or template(scope["path"])
        inner = getattr(one, "routes", None)
        if inner:
            below = _of_routes(inner, {**scope, **child})
            path = None if below is None else path + below
        if path is None:
            continue
        if match.name == "FULL":
            return path or "/"
        partial = partial or path
    return partial


def _of_included(router: Any, scope: Any) -> str | None:
    """The template of a route in a router that FastAPI has included, which keeps its routes to itself (0.165)."""
    try:
        _, _, route, context = router._match(scope)
        if context is None:
            return None if route is None else _of_included(route, scope)
        path = getattr(context.starlette_route, "path_format", None) or context.path_format
        return str(path)
    except (AttributeError, TypeError, ValueError):
        # Another version of FastAPI.
        return None
