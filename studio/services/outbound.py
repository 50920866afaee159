"""POSTs to URLs that users chose, with protection against server-side request forgery (SSRF).

The name is resolved here and the connection goes to the very IP address that was checked, so DNS rebinding does not
work. Only public addresses are allowed, unless the operator allows private ones. Redirects are not followed, and only
the status of the answer is read.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, cast

import httpcore

from pipelines.messages import NOTHING, Message, say, tell
from pipelines.web.public_addresses import NotPublicError, choose_address
from studio.access.few import FewAtOnce
from studio.access.limits import RateError

TIMEOUT_S = 10.0
_names = FewAtOnce("names", threads=8, waiting=40)  # a name whose server never answers holds a thread for half a minute


class _PublicOnly(httpcore.AsyncNetworkBackend):
    """A network backend that resolves a name once and connects to the very address that was checked."""

    def __init__(self, *, allows_private: bool) -> None:
        self._allows_private = allows_private
        # httpcore declares AnyIOBackend twice; type checkers take the empty one, for installs without anyio.
        self._backend = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        address = await _names.run(partial(choose_address, host, port, allows_private=self._allows_private))
        return await self._backend.connect_tcp(
            address, port, timeout=timeout, local_address=local_address, socket_options=socket_options
        )


async def post(url: str, body: bytes, headers: Mapping[str, str], *, allows_private: bool) -> Message:
    """Posts the body; returns "" when the receiver answered 2xx, else what happened, worded for people."""
    try:
        async with (
            asyncio.timeout(TIMEOUT_S),
            httpcore.AsyncConnectionPool(
                ssl_context=ssl.create_default_context(), network_backend=_PublicOnly(allows_private=allows_private)
            ) as pool,
            pool.stream("POST", url, headers=list(headers.items()), content=body) as response,
        ):
            return NOTHING if 200 <= response.status < 300 else say("it answered {status}", status=response.status)
    except NotPublicError as error:
        return tell(error)
    except RateError as error:
        return error.detail
    except TimeoutError:
        return say("it did not answer within {time} s", time=f"{TIMEOUT_S:.0f}")
    except (socket.gaierror, UnicodeError):  # UnicodeError: the name is not valid in DNS
        return say("its name is not known")
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError) as error:
        return say("it cannot be reached: {error}", error=str(error)[:200])
