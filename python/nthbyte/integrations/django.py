"""Labels the requests of a Django site by the patterns of their routes."""

from __future__ import annotations

from asgiref.sync import iscoroutinefunction
from django.urls import Resolver404, resolve
from django.utils.decorators import sync_and_async_middleware

import nthbyte
from nthbyte._labels import decorator, label_steps
from nthbyte.integrations import NO_ROUTE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@sync_and_async_middleware
def labels(get_response: Any) -> Any:
    """Middleware, for ``MIDDLEWARE``: first there, it labels the others too.

    ``endpoint`` is the pattern of the route, such as ``/items/<int:pk>/``.
    """

    def label(request: Any) -> Any:
        try:
            endpoint = "/" + resolve(request.path_info, getattr(request, "urlconf", None)).route
        except Resolver404:
            endpoint = NO_ROUTE
        return nthbyte.label(endpoint=endpoint, method=request.method)

    def with_body(label: Any, response: Any) -> Any:
        if getattr(response, "streaming", False):
            content = response.streaming_content
            if getattr(response, "is_async", False):
                response.streaming_content = decorator(label)(_parts)(content)
            else:
                response.streaming_content = label_steps(label, content)
        return response

    if iscoroutinefunction(get_response):

        async def answer_later(request: Any) -> Any:
            own = label(request)
            with own:
                return with_body(own, await get_response(request))

        return answer_later

    def answer(request: Any) -> Any:
        own = label(request)
        with own:
            return with_body(own, get_response(request))

    return answer


async def _parts(content: Any) -> Any:
    async for part in content:
        yield part
