"""Authentication before every route, the page and its files: visitors are identified (people.py) or see the login page.

Everything but the login itself is behind it: REST, event streams, files, Gradio.
Not here: which of Gradio's routes exist at all (gradio.py).
"""

from urllib.parse import quote, urlencode

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from pipelines.messages import say
from studio.access.identify import Door, is_loopback
from studio.access.people import PERSON, Person
from studio.access_settings import Mode
from studio.api.errors import make_error

_PAGE = frozenset({("GET", "/login"), ("GET", "/login/inter.woff2")})
PUBLIC = {
    Mode.OPEN: frozenset[tuple[str, str]](),
    Mode.PASSWORD: _PAGE | {("POST", "/login")},
    Mode.HUGGINGFACE: _PAGE | {("GET", "/login/huggingface"), ("GET", "/login/callback")},
    Mode.PROXY: _PAGE,
}
"""The routes that are open without a login, by mode of access."""


FORWARDED = (b"x-forwarded-host", b"x-forwarded-proto", b"x-forwarded-prefix", b"x-forwarded-port", b"forwarded")
"""What a proxy says about the address that the visitor asked for; anybody else's would become the page's address."""


class Gate:
    """ASGI middleware that answers unknown visitors with 401, or redirects browsers that load a page to the login."""

    def __init__(self, app: ASGIApp, *, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes requests of known people on, streams included."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        client = scope.get("client")
        if not self._believes(client[0] if client else None):
            scope = {**scope, "headers": [pair for pair in scope["headers"] if pair[0] not in FORWARDED]}
        headers = Headers(scope=scope)
        person = self._door.identify(headers, client[0] if client else None)
        refusal = self._refuse(scope, headers, person)
        if refusal is not None and scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif refusal is not None:
            await refusal(scope, receive, send)
        else:
            await self._app({**scope, PERSON: person} if person else scope, receive, send)

    def _believes(self, peer: str | None) -> bool:
        """Tells whether to believe who says which name the studio was asked by: its proxies, and those of a Space."""
        settings = self._door.settings
        return settings.is_space or settings.is_trusted(peer) or is_loopback(peer or "")

    def _refuse(self, scope: Scope, headers: Headers, person: Person | None) -> Response | None:
        is_public = (scope.get("method", ""), scope["path"]) in PUBLIC[self._door.settings.mode]
        return None if person or is_public else _ask_to_log_in(scope, headers)


def _ask_to_log_in(scope: Scope, headers: Headers) -> Response:
    path: str = scope["path"]
    is_page = scope["type"] == "http" and scope["method"] == "GET" and "text/html" in headers.get("accept", "")
    if not is_page:
        refusal = make_error(
            401,
            title=say("Please log in"),
            detail=say("This studio must know who asks."),
            advice=say("Log in on the page, or send a token: Authorization: Bearer lumesh_..."),
            path=path,
        )
        refusal.headers["WWW-Authenticate"] = "Bearer"
        return refusal
    # Relative, so that it works behind a proxy's prefix.
    onward = quote(path.lstrip("/")) + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
    return RedirectResponse(
        "../" * (path.count("/") - 1) + "login" + (f"?{urlencode({'next': onward})}" if onward else ""), status_code=303
    )
