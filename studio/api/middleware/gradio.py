"""An allow-list of Gradio's routes: those that the page and `gradio_client` use, and no others.

Gradio has no owners, so its uploads, its file cache, its proxy and its developer tools would be open to every user. It
is mounted behind all routes of our own; a route that a newer Gradio adds stays closed until it is listed here. Whoever
names a session or an event there first owns it: others cannot follow or cancel it.
"""

import json
import logging
import re
from collections import deque
from collections.abc import Mapping
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


FOLLOW = re.compile(r"/gradio_api/(?:queue/data|heartbeat/(?P<session>[^/]+)|call/[^/]+/(?P<event>[^/]+))")
CALL = re.compile(r"/gradio_api/(queue/join|(call|run)/(?P<name>[^/]+)/?)")
MAX_OWNED = 1000  # sessions and events of one owner; a page has one session, a call one event
MAX_NAME_CHARS = 100  # Gradio's own have 10 and 32

log = logging.getLogger(__name__)


class NeededRoutesOnly:
    """ASGI middleware for Gradio's application: 404 for every unlisted route and other people's sessions and events.

    Gradio fetches files that a request names by URL, and answers malformed requests with 500: no endpoint of ours takes
    a file, so requests with one, and malformed ones, get 422.
    """

    def __init__(self, app: ASGIApp, *, count_inputs: Mapping[str, int]) -> None:
        """`count_inputs` maps an endpoint's name, and its number as text, to how many values it takes."""
        self._app = app
        self._count_inputs = count_inputs
        self._owners = Owners()

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
            await _refuse_unknown(scope, receive, send)
            return
        owner = scope[PERSON].owner if PERSON in scope else ""
        named = _list_followed(scope, path)
        if scope["method"] == "POST":
            body = await _read_whole(receive)
            receive = _replay(body, receive)
            call = _parse(body)
            endpoint = CALL.fullmatch(path)
            if call is None or (endpoint and not self._is_call(call, endpoint["name"])):
                detail = say("A call is a JSON object whose `data` is a list of all values, none of them a file.")
                await make_error(422, title=RecipeError.title, detail=detail)(scope, receive, send)
                return
            named = [call[name] for name in ("session_hash", "event_id") if isinstance(call.get(name), str)]
        if not all(self._owners.claim(name, owner) for name in named):
            await _refuse_unknown(scope, receive, send)
            return
        await self._answer(scope, receive, self._watch(send, owner) if CALL.fullmatch(path) else send)

    def _is_call(self, call: dict[str, Any], name: str | None) -> bool:
        """Tells whether this is a call that Gradio understands: of too few values it prints a traceback."""
        data, least = call.get("data"), self._count_inputs.get(name or str(call.get("fn_index")), 0)
        return isinstance(data, list) and len(cast("list[Any]", data)) >= least and not _has_file(call)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def send_on(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_on)
        except Exception as error:
            if has_begun:
                raise
            log.warning("%s %s: %s: %s", scope["method"], scope["path"][:200], type(error).__name__, str(error)[:200])
            detail = say("This call cannot be understood.")
            await make_error(422, title=RecipeError.title, detail=detail)(scope, receive, send)

    def _watch(self, send: Send, owner: str) -> Send:
        """Notes whose event an answer names: who asked may follow it, nobody else."""

        async def send_on(message: Message) -> None:
            body = message.get("body", b"")
            if b'"event_id"' in body and len(body) < 1000:
                event = (_parse(body) or {}).get("event_id")
                if isinstance(event, str):
                    self._owners.claim(event, owner)
            await send(message)

        return send_on


async def _refuse_unknown(scope: Scope, receive: Receive, send: Send) -> None:
    detail = say("There is no {path} here.", path=scope["path"][:100])
    await make_error(404, title=say("Not found"), detail=detail)(scope, receive, send)


class Owners:
    """Who began which session or event. Of each owner the newest are known, so that nobody's push out another's."""

    def __init__(self) -> None:
        self._owner_of: dict[str, str] = {}
        self._names: dict[str, deque[str]] = {}

    def claim(self, name: str, owner: str) -> bool:
        """Makes it this owner's, if it is nobody's yet; returns False when it is somebody else's."""
        name = name[:MAX_NAME_CHARS]
        if name in self._owner_of:
            return self._owner_of[name] == owner
        names = self._names.setdefault(owner, deque())
        if len(names) >= MAX_OWNED:
            del self._owner_of[names.popleft()]
        names.append(name)
        self._owner_of[name] = owner
        return True


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


def _has_file(call: dict[str, Any]) -> bool:
    """Tells whether a call holds what Gradio takes for a file: an object with a `path`, or marked as one."""
    waiting: list[Any] = [call]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            if "path" in fields or "gradio.FileData" in str(fields.get("meta")):
                return True
            waiting += fields.values()
        elif isinstance(value, list):
            waiting += cast("list[Any]", value)
    return False


def is_allowed(method: str, path: str) -> bool:
    """Tells whether Gradio may answer this request."""
    allowed = ALLOWED.get(method)
    return allowed is not None and allowed.fullmatch(path) is not None
