"""Limits the size of request bodies before any route reads them: 1 MB, and more for routes that take files.

Bytes are counted as they arrive, whatever the headers claim.
"""

import re

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipelines.messages import say
from studio.api.errors import make_error
from studio.library.loras import MAX_BYTES as MAX_LORA_BYTES

MAX_BYTES = 1_000_000
MAX_FILE_BYTES = 21_000_000  # the largest file that a route takes has 20 MB, with a form around it
LORAS_PATH = "/api/v1/loras"
FILE_PATHS = re.compile(r"/api/v1/(uploads|recipes/read|presets/import|presets/check)$")
TITLE = say("This is too large")


class LimitedSize:
    """ASGI middleware that answers 413 to longer bodies."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes all other requests on untouched."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = _find_limit(scope["path"])
        promised = Headers(scope=scope).get("content-length", "0")
        if not promised.isdecimal() or int(promised) > limit:
            detail = say("A request to {path} may have {size} MB.", path=scope["path"][:100], size=limit // 1_000_000)
            await make_error(413, title=TITLE, detail=detail, path=scope["path"])(scope, receive, send)
            return
        count = 0

        async def receive_counted() -> Message:
            nonlocal count
            message = await receive()
            count += len(message.get("body", b""))
            if count > limit:
                raise HTTPException(413, TITLE)
            return message

        await self._app(scope, receive_counted, send)


def _find_limit(path: str) -> int:
    if path == LORAS_PATH:
        return MAX_LORA_BYTES
    return MAX_FILE_BYTES if FILE_PATHS.match(path) else MAX_BYTES
