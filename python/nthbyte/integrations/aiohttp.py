"""Labels the requests of an aiohttp server by the patterns of their routes."""

from __future__ import annotations

from aiohttp import web

import nthbyte
from nthbyte.integrations import NO_ROUTE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@web.middleware
async def labels(request: Any, handler: Any) -> Any:
    """Middleware, for ``web.Application(middlewares=[...])``; the endpoint is a pattern, such as ``/items/{item}``."""
    resource = request.match_info.route.resource
    endpoint = NO_ROUTE if resource is None else resource.canonical
    with nthbyte.label(endpoint=endpoint, method=request.method):
        return await handler(request)
