"""Refuses what another site's page makes a browser send: without a login, a visitor's browser must not be a tool.

Browsers say where a request comes from (`Sec-Fetch-Site`, sent by all of them since 2023); scripts do not send it and
pass. Unlike a comparison of Origin with Host it holds behind any proxy.
"""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from studio.api.errors import make_error

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITES = frozenset({"same-origin", "none"})  # "none": the visitor typed the address


class OwnPagesOnly:
    """ASGI middleware: 403 for every request that changes something and comes from a page of another origin."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes everything else on untouched, streams included."""
        if scope["type"] == "http" and scope["method"] not in SAFE_METHODS:
            came_from = Headers(scope=scope).get("sec-fetch-site", "none")
            if came_from not in OWN_SITES:
                refusal = make_error(
                    403,
                    title="Refused",
                    detail="This request comes from another site's page.",
                    advice="Use the studio's own page, or a script.",
                )
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)
