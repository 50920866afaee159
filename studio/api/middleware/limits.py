"""Limits the bodies of requests before any route reads them: their size, their number, their time, their values.

A body has 1 MB, and more for routes that take files or the captions of a training; bytes are counted as they arrive,
whatever the headers claim. Of large bodies a client may have a few under way, so that their memory is bounded: others
wait unread. Those that go to the disk in parts have turns of their own, given back once they have arrived: what is
then done with them keeps nobody else waiting. A body that stops arriving is given up. JSON that holds too many values
is refused before anything describes them (pipelines/modest.py).
Not here: whose turn is next (access/turns.py), connections that never become a request (api/connections.py).
"""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipelines.errors import LumeshError, RecipeError
from pipelines.messages import english, say
from pipelines.modest import MAX_VALUES, find_excess
from studio.access.limits import RateError
from studio.access.networks import find_network
from studio.access.people import PERSON, Person
from studio.access.turns import Turns
from studio.api.errors import answer_error, make_error
from studio.jobs.training import MAX_CAPTION_CHARS, MAX_PICTURES, MAX_PRIOR_PROMPTS
from studio.library.loras import MAX_BYTES as MAX_LORA_BYTES
from studio.library.models import MAX_BYTES as MAX_MODEL_BYTES
from studio.library.uploaded_clips import MAX_BYTES as MAX_CLIP_BYTES

MAX_BYTES = 1_000_000
MAX_FILE_BYTES = 21_000_000  # the largest file that a route takes has 20 MB, with a form around it
LETTER_BYTES = 6  # of most languages' letters, escaped as \uXXXX; any letter has at most four in UTF-8
MAX_TRAINING_BYTES = MAX_BYTES + (MAX_PICTURES + MAX_PRIOR_PROMPTS) * MAX_CAPTION_CHARS * LETTER_BYTES
WORDS_PATH = "/api/v1/wildcards/"
MAX_WORDS = 25_000  # a wildcard has 20 000 lines


class BodyTooLargeError(LumeshError):
    """A body has more bytes than its route takes."""

    title = say("This is too large")
    status = 413

    def __init__(self, path: str, limit: int) -> None:
        super().__init__(
            say("A request to {path} may have {size} MB.", path=path[:100], size=limit // 1_000_000),
            advice=say("Make it smaller, and send it again."),
        )


@dataclass(frozen=True, kw_only=True)
class Body:
    """What a route's body may be: `limit` bytes, and `is_file` where the route itself reads it as it arrives."""

    limit: int
    is_file: bool

    @property
    def is_stream(self) -> bool:
        """Whether it goes to the disk in parts, so that no more than a part is in memory."""
        return self.limit > MAX_FILE_BYTES


_FILE = Body(limit=MAX_FILE_BYTES, is_file=True)
BODIES = {
    "/api/v1/loras": Body(limit=MAX_LORA_BYTES, is_file=True),
    "/api/v1/models": Body(limit=MAX_MODEL_BYTES, is_file=True),
    "/api/v1/clips": Body(limit=MAX_CLIP_BYTES, is_file=True),
    "/api/v1/trainings": Body(limit=MAX_TRAINING_BYTES, is_file=False),
    "/api/v1/uploads": _FILE,
    "/api/v1/recipes/read": _FILE,
    "/api/v1/presets/import": _FILE,
    "/api/v1/presets/check": _FILE,
    "/v1/images/edits": _FILE,
}
"""The limits of paths whose bodies may be larger than MAX_BYTES; above MAX_FILE_BYTES they go to the disk in parts."""
OTHER_BODY = Body(limit=MAX_BYTES, is_file=False)

LARGE_BYTES = 100_000
LARGE_EACH = 6  # what a browser sends at once
LARGE_ALL = 24  # 500 MB in memory at most, and as many streams with a part of 4 MB each
LARGE_WAITING = 40  # of one client, unread
TURN_S = 30.0
SILENT_S = 20.0  # between two parts of a body
SLOW_S, SLOW_BYTES_PER_S = 30.0, 4000  # slower than this on the whole, after this long, is no upload


class LimitedSize:
    """ASGI middleware that answers 413 to longer bodies, 408 to those that stop, 422 to JSON of too many values."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._turns = {is_stream: _make_turns() for is_stream in (False, True)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes all other requests on untouched."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        body = find_body(path)
        limit = body.limit
        headers = Headers(scope=scope)
        promised = headers.get("content-length", "0")
        if not promised.isdecimal() or int(promised) > limit:
            await answer_error(BodyTooLargeError(path, limit), path=path)(scope, receive, send)
            return
        arriving = _Arriving(receive, limit=limit, too_large=BodyTooLargeError(path, limit))
        try:
            if int(promised) <= LARGE_BYTES and "transfer-encoding" not in headers:
                await self._read(scope, arriving, send)
                return
            async with self._turns[body.is_stream].take(_name_client(scope)) as give_back:
                if body.is_stream:
                    arriving.tell_end = give_back
                await self._read(scope, arriving, send)
        except RateError as error:
            await answer_error(error, path=path)(scope, receive, send)

    async def _read(self, scope: Scope, arriving: "_Arriving", send: Send) -> None:
        path: str = scope["path"]
        if find_body(path).is_file:
            await self._app(scope, arriving.receive, send)
            return
        try:
            messages = [await arriving.receive()]
            while messages[-1]["type"] == "http.request" and messages[-1].get("more_body"):
                messages.append(await arriving.receive())
        except BodyTooLargeError as error:
            await answer_error(error, path=path)(scope, receive_nothing, send)
            return
        except HTTPException as error:
            refusal = make_error(error.status_code, title=english(error.detail), detail=english(path[:100]), path=path)
            await refusal(scope, receive_nothing, send)
            return
        body = b"".join(message.get("body", b"") for message in messages)
        values = MAX_WORDS if path.startswith(WORDS_PATH) else MAX_VALUES
        if len(body) > LARGE_BYTES:
            problem = await asyncio.to_thread(_find_excess, body, limit=values)
        else:
            problem = _find_excess(body, limit=values)
        if problem is not None:
            refusal = make_error(422, title=problem.title, detail=problem.detail, fields=problem.fields, path=path)
            await refusal(scope, receive_nothing, send)
            return
        waiting = iter(messages)

        async def receive_again() -> Message:
            return next(waiting, None) or await arriving.receive()

        await self._app(scope, receive_again, send)


async def receive_nothing() -> Message:
    """Stands for the rest of a body that nobody reads."""
    return {"type": "http.disconnect"}


class _Arriving:
    """A body as it arrives: counted, and given up when it stops or creeps."""

    def __init__(self, receive: Receive, *, limit: int, too_large: BodyTooLargeError) -> None:
        self._receive = receive
        self._limit = limit
        self._too_large = too_large
        self._count = 0
        self._began_s = time.monotonic()
        self._is_complete = False
        self.tell_end: Callable[[], None] = lambda: None
        """Called once nothing more of it comes."""

    async def receive(self) -> Message:
        if self._is_complete:  # from here on it only tells when the client is gone, which may take as long as it likes
            return await self._receive()
        try:
            async with asyncio.timeout(SILENT_S):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, english("The request did not arrive completely")) from None
        self._count += len(message.get("body", b""))
        self._is_complete = not message.get("more_body", False)
        if self._is_complete:
            self.tell_end()
        if self._count > self._limit:
            raise self._too_large
        took_s = time.monotonic() - self._began_s
        if not self._is_complete and took_s > SLOW_S and self._count < took_s * SLOW_BYTES_PER_S:
            raise HTTPException(408, english("The request arrives too slowly"))
        return message


def _find_excess(body: bytes, *, limit: int) -> RecipeError | None:
    """Counts the values of a body that may be JSON; a body with few commas and colons has few, whatever it is."""
    if body.count(b",") + body.count(b":") + body.count(b"[") <= limit or body.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        excess = find_excess(json.loads(body), limit=limit)
    except RecursionError:
        return RecipeError({"body": say("is nested too deeply")})
    except ValueError:
        return None  # the route says what is wrong with it
    return None if excess is None else RecipeError({excess[0] or "body": excess[1]})


def _name_client(scope: Scope) -> str:
    person: Person | None = scope.get(PERSON)
    if person is not None:
        return person.client
    peer = scope.get("client")
    return find_network(peer[0] if peer else "unknown")


def _make_turns() -> Turns:
    refusal = say("Too many large requests of yours are under way.")
    return Turns(each=LARGE_EACH, all_=LARGE_ALL, waiting=LARGE_WAITING, wait_s=TURN_S, refusal=refusal)


def find_body(path: str) -> Body:
    """Returns what the body of a request to this path may be."""
    return BODIES.get(path, OTHER_BODY)
