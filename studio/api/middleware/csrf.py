"""CSRF protection by `Sec-Fetch-Site` and `Origin`: another site's page must not act with a visitor's cookie.

Our own page and scripts pass (access/own_page.py). Pages of `--allow-origins` pass too: a listed one as if it were
ours, any other under `*` only without a cookie, so that it can do nothing in a visitor's name.
"""

from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from pipelines.messages import say
from studio.access.own_page import is_own_page
from studio.access_settings import EVERY_ORIGIN
from studio.api.errors import make_error

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class OwnPagesOnly:
    """ASGI middleware that answers 403 to every changing request from a page of an origin that is not allowed."""

    def __init__(self, app: ASGIApp, *, allow_origins: Collection[str] = ()) -> None:
        self._app = app
        self._allow_origins = allow_origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes everything else on untouched, streams included."""
        if (
            scope["type"] == "http"
            and scope["method"] not in SAFE_METHODS
            and not self._is_let_in(Headers(scope=scope))
        ):
            refusal = make_error(
                403,
                title=say("Refused"),
                detail=say("This request comes from another site's page."),
                advice=say("Use the studio's own page, or a script."),
                path=scope["path"],
            )
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_let_in(self, headers: Headers) -> bool:
        origin = headers.get("origin", "").lower()
        is_any = EVERY_ORIGIN in self._allow_origins and bool(origin) and "cookie" not in headers
        return is_own_page(headers) or origin in self._allow_origins or is_any
