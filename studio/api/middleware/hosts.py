"""Protection against DNS rebinding: a studio that listens only on its own machine refuses every other host name.

Another site can resolve its own name to 127.0.0.1 (DNS rebinding): then its page and the studio are one origin to the
browser. An IP address cannot be rebound, so addresses and `localhost` pass. app.py adds this middleware, because it
knows the address that is listened on.
"""

import ipaddress
import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from pipelines.messages import say
from studio.api.errors import make_error


class OwnNamesOnly:
    """ASGI middleware that answers 421 to every other host name."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes all other requests on untouched."""
        host = Headers(scope=scope).get("host", "") if scope["type"] == "http" else "localhost"
        if is_own_name(host):
            await self._app(scope, receive, send)
            return
        refusal = make_error(
            421,
            title=say("Unknown name"),
            detail=say(
                "This studio is open to this machine alone, and {host} is no name of it.", host=repr(host[:100])
            ),
            advice=say("Open http://127.0.0.1, or start it with --access proxy, or with --open."),
        )
        await refusal(scope, receive, send)


def is_own_name(host: str) -> bool:
    """Tells whether a Host header is an address or names this machine."""
    name = re.sub(r":\d+$", "", host).lower()
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
    return True
