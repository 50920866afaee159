"""CSRF protection by `Sec-Fetch-Site` and `Origin`: another site's page must not act with a visitor's cookie.

Browsers say where a request comes from (`Sec-Fetch-Site`), which holds behind any proxy, but only where the page came
over HTTPS or from this machine; elsewhere they send `Origin`, which must be the studio's own address. Scripts send
neither and pass.
"""

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from pipelines.messages import say
from studio.api.errors import make_error

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITES = frozenset({"same-origin", "none"})  # "none": the visitor typed the address


class OwnPagesOnly:
    """ASGI middleware that answers 403 to every changing request from a page of another origin."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes everything else on untouched, streams included."""
        if scope["type"] == "http" and scope["method"] not in SAFE_METHODS and not _is_own(Headers(scope=scope)):
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


def _is_own(headers: Headers) -> bool:
    """Tells whether our own page or a script asks. Other sites cannot set `X-Forwarded-Host`: preflights fail."""
    came_from = headers.get("sec-fetch-site")
    if came_from is not None:
        return came_from in OWN_SITES
    origin = headers.get("origin")
    if origin is None:
        return True
    hosts = (headers.get("host"), headers.get("x-forwarded-host"))
    return bool(netloc := urlsplit(origin).netloc) and netloc in hosts
