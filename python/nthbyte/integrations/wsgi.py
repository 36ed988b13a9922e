"""Labels the requests of a WSGI application."""

from __future__ import annotations

import nthbyte
from nthbyte._labels import label_steps
from nthbyte.integrations import template

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    Application = Callable[[Any, Any], Iterable[bytes]]


class Labels:
    """Middleware: all that a request does has its endpoint and method, and so has what makes its body.

    ``endpoint`` returns the endpoint of a WSGI environment. By default it is the path, with ``{}`` for each part that
    has a digit.
    """

    def __init__(self, app: Application, endpoint: Callable[[Any], str] | None = None):
        self._app = app
        self._endpoint = endpoint or (lambda environ: template(environ.get("PATH_INFO", "/")))

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        """Runs the application."""
        label = nthbyte.label(endpoint=self._endpoint(environ), method=environ.get("REQUEST_METHOD", "GET"))
        with label:
            body = self._app(environ, start_response)
        # A list or a wrapped file makes nothing later; a server may know how to send it.
        if isinstance(body, (list, tuple, environ.get("wsgi.file_wrapper", list))):
            return body
        return _Body(label, body)


class _Body:
    """A body whose parts are made with the label of its request."""

    def __init__(self, label: Any, body: Iterable[bytes]):
        self._label = label
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        return label_steps(self._label, self._body)

    def close(self) -> None:
        close = getattr(self._body, "close", None)
        if close is not None:
            with self._label:
                close()
