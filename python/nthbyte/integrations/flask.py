"""Labels the requests of a Flask application by the rules of their routes."""

from __future__ import annotations

from werkzeug.exceptions import HTTPException

from nthbyte.integrations import NO_ROUTE
from nthbyte.integrations.wsgi import Labels

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def label(app: Any) -> None:
    """Labels what the requests of an application do; ``endpoint`` is the rule of a route: ``/items/<int:item>``."""

    def rule(environ: Any) -> str:
        try:
            matched, _ = app.url_map.bind_to_environ(environ).match(return_rule=True)
        except HTTPException:
            # No route, another method, or a redirect.
            return NO_ROUTE
        return str(matched.rule)

    app.wsgi_app = Labels(app.wsgi_app, rule)
