"""POSTs to URLs that users chose, with protection against server-side request forgery (SSRF).

The name is resolved here and the connection goes to the very IP address that was checked, so DNS rebinding does not
work. Only public addresses are allowed, unless the operator allows private ones. Redirects are not followed, and only
the status of the answer is read.
"""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, cast
from urllib.parse import urlsplit

import httpcore

from pipelines.messages import NOTHING, Message, say, tell
from studio.access.few import FewAtOnce
from studio.access.limits import RateError

TIMEOUT_S = 10.0
MAX_URL_CHARS = 2000
# Counted as global, but the last four bytes are an IPv4 address: NAT64 (RFC 6052), IPv4-compatible (RFC 4291, long
# deprecated) and IPv4-translated (SIIT, RFC 2765).
_HOLDS_IPV4 = [ipaddress.ip_network(text) for text in ("64:ff9b::/96", "::/96", "::ffff:0:0:0/96")]
# Counted as global too: site-local (RFC 3879), 6to4 relays (RFC 7526), and what every machine at Azure is served from.
_NOT_PUBLIC = [ipaddress.ip_network(text) for text in ("fec0::/10", "192.88.99.0/24", "168.63.129.16/32")]
_NEARBY = (".localhost", ".local", ".internal", ".home.arpa", ".lan")
_names = FewAtOnce("names", threads=8, waiting=40)  # a name whose server never answers holds a thread for half a minute


class NotPublicError(Exception):
    """The host name resolves to no public address."""


def find_url_problem(url: str, *, allows_private: bool = False) -> Message:
    """Returns what is wrong with the text of a URL, or an empty string; asks no name server."""
    try:
        parts = urlsplit(url)
        is_complete = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_complete = False
        parts = urlsplit("")
    if not is_complete or len(url) > MAX_URL_CHARS or not url.isascii() or any(sign.isspace() for sign in url):
        return say("is not an address; write https://host/path")
    if parts.username is not None or parts.password is not None:
        return say("has a user or password in it; leave them out, the signature proves who sends")
    if not allows_private and _is_private_host(parts.hostname or ""):
        return say("is not on the public internet")
    return NOTHING


def _is_private_host(host: str) -> bool:
    """Tells whether a host can never be public: an address in any spelling, or a name that is only known nearby."""
    try:
        found = socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        name = host.rstrip(".").lower()
        return "." not in name or name.endswith(_NEARBY)
    return not any(is_public(str(sockaddr[0])) for *_, sockaddr in found)


def is_public(address: str) -> bool:
    """Tells whether an IP address is public, also when it is wrapped in an IPv6 transition address."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and any(ip in network for network in _HOLDS_IPV4):
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
    return ip.is_global and not ip.is_multicast and not any(ip in network for network in _NOT_PUBLIC)


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
        found = await _names.run(partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM))
        addresses = [str(sockaddr[0]) for *_, sockaddr in found]
        allowed = [address for address in addresses if self._allows_private or is_public(address)]
        if not allowed:
            raise NotPublicError(say("{host} is not on the public internet", host=host))
        return await self._backend.connect_tcp(
            allowed[0], port, timeout=timeout, local_address=local_address, socket_options=socket_options
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
