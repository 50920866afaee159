"""Authentication before every route, the page and its files: visitors are identified (people.py) or see the login page.

Everything but the login itself is behind it: REST, event streams, files, Gradio. What only a proxy may say of the
visitor's address is taken out of anybody else's request here, before any route reads it.
Not here: which of Gradio's routes exist at all (gradio.py).
"""

import logging
import sqlite3
from urllib.parse import quote, urlencode

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from pipelines.errors import LumeshError
from pipelines.messages import say
from studio.access.identify import Door, is_loopback
from studio.access.people import PERSON, Person
from studio.access_settings import Mode
from studio.api.errors import answer_error, make_error
from studio.storage import explain

_PAGE = frozenset({("GET", "/login"), ("GET", "/login/inter.woff2")})
PUBLIC = {
    Mode.OPEN: frozenset[tuple[str, str]](),
    Mode.PASSWORD: _PAGE | {("POST", "/login")},
    Mode.HUGGINGFACE: _PAGE | {("GET", "/login/huggingface"), ("GET", "/login/callback")},
    Mode.PROXY: _PAGE,
}
"""The routes that are open without a login, by mode of access."""


SCHEME = b"x-forwarded-proto"
ADDRESS = frozenset((b"x-forwarded-host", b"x-forwarded-prefix", b"x-forwarded-port", b"forwarded", b"x-gradio-server"))
"""What says at which address the visitor reached us: anybody else's than a proxy's would become the page's own."""

log = logging.getLogger(__name__)


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
        peer = client[0] if client else None
        scope = {**scope, "headers": [pair for pair in scope["headers"] if self._believes(pair[0], peer)]}
        headers = Headers(scope=scope)
        try:
            person = self._door.identify(headers, peer)
        except (LumeshError, OSError, sqlite3.Error) as error:
            await _refuse_for_now(scope, receive, send, error)
            return
        refusal = self._refuse(scope, headers, person)
        if refusal is not None and scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif refusal is not None:
            await refusal(scope, receive, send)
        else:
            await self._app({**scope, PERSON: person} if person else scope, receive, send)

    def _believes(self, header: bytes, peer: str | None) -> bool:
        """Tells whether to keep a header: the visitor's address is told by trusted proxies, and by those of a Space.

        A program of this machine, as most proxies are, may also say that the visitor came over HTTPS: without that
        a cookie would not be marked `Secure`.
        """
        if header not in ADDRESS and header != SCHEME:
            return True
        settings = self._door.settings
        is_proxy = settings.is_space or settings.is_trusted(peer)
        return is_proxy or (header == SCHEME and is_loopback(peer or ""))

    def _refuse(self, scope: Scope, headers: Headers, person: Person | None) -> Response | None:
        is_public = (scope.get("method", ""), scope["path"]) in PUBLIC[self._door.settings.mode]
        return None if person or is_public else _ask_to_log_in(scope, headers)


async def _refuse_for_now(scope: Scope, receive: Receive, send: Send, error: Exception) -> None:
    """Answers while the database or the users file cannot be read: nobody is let in, and everybody learns why."""
    told = explain(error)
    if told is None and not isinstance(error, LumeshError):
        raise error
    log.error("nobody can be identified: %s", error)
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1011})
    elif told is not None:
        await answer_error(told, path=scope["path"])(scope, receive, send)
    else:
        detail, advice = say("The server cannot read who may log in."), say("Ask who runs this studio.")
        title = say("Nobody can log in now")
        await make_error(503, title=title, detail=detail, advice=advice, path=scope["path"])(scope, receive, send)


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
