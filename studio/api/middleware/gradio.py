"""An allow-list of Gradio's routes: those that the page and `gradio_client` use, and no others.

Gradio has no owners, so its uploads, its file cache, its proxy and its developer tools would be open to every user. It
is mounted behind all routes of our own; a route that a newer Gradio adds stays closed until it is listed here. Who
began a session or an event there owns it: others cannot follow or cancel it.
"""

import json
import logging
import re
from collections import OrderedDict
from typing import Any, cast
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipelines.errors import RecipeError
from pipelines.messages import say
from studio.access.people import PERSON
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


TALK = re.compile(r"/gradio_api/(queue/join|cancel|reset/?|(call|run)/[^/]+/?)")
FOLLOW = re.compile(r"/gradio_api/(?:queue/data|heartbeat/(?P<session>[^/]+)|call/[^/]+/(?P<event>[^/]+))")
CALL = re.compile(r"/gradio_api/(queue/join|(call|run)/[^/]+/?)")
MAX_OWNED = 10_000

log = logging.getLogger(__name__)


class NeededRoutesOnly:
    """ASGI middleware for Gradio's application: 404 for every unlisted route and other people's sessions and events.

    Gradio fetches files that a request names by URL, and answers malformed requests with 500: no endpoint of ours takes
    a file, so requests with one, and malformed ones, get 422.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._owners = OrderedDict[str, str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes requests for listed routes on untouched, streams included."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        if not is_allowed(scope["method"], path):
            detail = say("There is no {path} here.", path=path[:100])
            await make_error(404, title=say("Not found"), detail=detail)(scope, receive, send)
            return
        owner = scope[PERSON].owner if PERSON in scope else ""
        named = _list_followed(scope, path)
        if scope["method"] == "POST" and TALK.fullmatch(path):
            body = await _read_whole(receive)
            receive = _replay(body, receive)
            call = _parse(body)
            if call is None or (CALL.fullmatch(path) and (not isinstance(call.get("data"), list) or _has_file(call))):
                detail = say("A call is a JSON object whose `data` is a list of values, none of them a file.")
                await make_error(422, title=RecipeError.title, detail=detail)(scope, receive, send)
                return
            named = [call[name] for name in ("session_hash", "event_id") if isinstance(call.get(name), str)]
        if any(self._owners.get(name, owner) != owner for name in named):
            detail = say("There is no {path} here.", path=path[:100])
            await make_error(404, title=say("Not found"), detail=detail)(scope, receive, send)
            return
        if scope["method"] == "POST":
            self._own(named, owner)
            send = self._watch(send, owner)
        await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def send_on(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_on)
        except Exception:
            if has_begun:
                raise
            log.exception("%s %s", scope["method"], scope["path"])
            detail = say("This call cannot be understood.")
            await make_error(422, title=RecipeError.title, detail=detail)(scope, receive, send)

    def _own(self, names: list[str], owner: str) -> None:
        for name in names:
            self._owners[name[:100]] = owner
        while len(self._owners) > MAX_OWNED:
            self._owners.popitem(last=False)

    def _watch(self, send: Send, owner: str) -> Send:
        """Notes whose event an answer names: who asked may follow it, nobody else."""

        async def send_on(message: Message) -> None:
            body = message.get("body", b"")
            if b'"event_id"' in body and len(body) < 1000:
                event = (_parse(body) or {}).get("event_id")
                self._own([event] if isinstance(event, str) else [], owner)
            await send(message)

        return send_on


def _list_followed(scope: Scope, path: str) -> list[str]:
    """Returns the session and the event that a GET follows."""
    if not (found := FOLLOW.fullmatch(path)):
        return []
    query = parse_qs(scope["query_string"].decode("latin-1"))
    return [*query.get("session_hash", ()), *filter(None, found.groups())]


async def _read_whole(receive: Receive) -> bytes:
    """Reads the body, which middleware/limits.py has bounded."""
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    return body


def _replay(body: bytes, receive: Receive) -> Receive:
    waiting = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive_again() -> Message:
        return next(waiting, None) or await receive()

    return receive_again


def _parse(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _has_file(value: Any) -> bool:
    """Tells whether a value holds what Gradio takes for a file: an object with a `path`, or marked as one."""
    if isinstance(value, dict):
        values = cast("dict[str, Any]", value)
        return "path" in values or "gradio.FileData" in str(values.get("meta")) or any(map(_has_file, values.values()))
    return isinstance(value, list) and any(map(_has_file, cast("list[Any]", value)))


def is_allowed(method: str, path: str) -> bool:
    """Tells whether Gradio may answer this request."""
    allowed = ALLOWED.get(method)
    return allowed is not None and allowed.fullmatch(path) is not None
