"""Protection against DNS rebinding: a studio that is open to its own machine alone refuses every other host name.

Another site can let its own name lead to 127.0.0.1 (DNS rebinding): then its page and the studio are one origin to the
browser. An address cannot do that, so addresses and `localhost` pass. app.py adds this; it knows what is listened on.
"""

import ipaddress
import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from studio.api.errors import make_error


class OwnNamesOnly:
    """ASGI middleware: 421 for every other name."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes everything else on untouched."""
        host = Headers(scope=scope).get("host", "") if scope["type"] == "http" else "localhost"
        if is_own_name(host):
            await self._app(scope, receive, send)
            return
        refusal = make_error(
            421,
            title="Unknown name",
            detail=f"This studio is open to this machine alone, and {host[:100]!r} is no name of it.",
            advice="Open http://127.0.0.1, or start it with --access proxy, or with --open.",
        )
        await refusal(scope, receive, send)


def is_own_name(host: str) -> bool:
    """Whether a Host header names this machine, or an address."""
    name = re.sub(r":\d+$", "", host).lower()
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
    return True
