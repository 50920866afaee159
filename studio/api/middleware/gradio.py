"""An allow-list of Gradio's routes: those that the page and `gradio_client` use, and no others.

Gradio has no owners, so its uploads, its file cache, its proxy and its developer tools would be open to every user. It
is mounted behind all routes of our own; a route that a newer Gradio adds stays closed until it is listed here.
"""

import re

from starlette.types import ASGIApp, Receive, Scope, Send

from pipelines.messages import say
from studio.api.errors import make_error

# Routes of Gradio 6.31, recorded from a browser that uses the page, and from gradio_client's own tests.
ALLOWED = {
    "GET": re.compile(
        r"/(config/?|theme\.css|favicon\.ico|robots\.txt|assets/.+|static/.+)?"
        r"|/gradio_api/(info/?|queue/data|call/[^/]+/[^/]+|heartbeat/[^/]+)"
    ),
    "HEAD": re.compile("/"),
    "POST": re.compile(r"/gradio_api/(queue/join|cancel|reset/?|(call|run)/[^/]+/?)"),
}


class NeededRoutesOnly:
    """ASGI middleware for Gradio's application that answers 404 for every unlisted route."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes requests for listed routes on untouched, streams included."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "http" and not is_allowed(scope["method"], scope["path"]):
            detail = say("There is no {path} here.", path=scope["path"][:100])
            await make_error(404, title=say("Not found"), detail=detail)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def is_allowed(method: str, path: str) -> bool:
    """Tells whether Gradio may answer this request."""
    allowed = ALLOWED.get(method)
    return allowed is not None and allowed.fullmatch(path) is not None
