"""Which addresses that people give may be asked from here: public ones, against server-side request forgery (SSRF).

A name is resolved by whoever connects, to the very address that is checked then (web_files.py, the studio's
outbound.py), so that DNS rebinding does not work.
"""

import ipaddress
import socket
from urllib.parse import urlsplit

from pipelines.messages import NOTHING, Message, say

MAX_URL_CHARS = 2000
# Counted as global, but the last four bytes are an IPv4 address: NAT64 (RFC 6052), IPv4-compatible (RFC 4291, long
# deprecated) and IPv4-translated (SIIT, RFC 2765).
_HOLDS_IPV4 = [ipaddress.ip_network(text) for text in ("64:ff9b::/96", "::/96", "::ffff:0:0:0/96")]
# Counted as global too: site-local (RFC 3879), 6to4 relays (RFC 7526), and what every machine at Azure is served from.
_NOT_PUBLIC = [ipaddress.ip_network(text) for text in ("fec0::/10", "192.88.99.0/24", "168.63.129.16/32")]
_NEARBY = (".localhost", ".local", ".internal", ".home.arpa", ".lan")


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
        return say("has a user or password in it; leave them out")
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


def choose_address(host: str, port: int, *, allows_private: bool) -> str:
    """Resolves a name and returns the address to connect to; raises NotPublicError, and OSError for unknown names."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(sockaddr[0]) for *_, sockaddr in found]
    allowed = [address for address in addresses if allows_private or is_public(address)]
    if not allowed:
        raise NotPublicError(say("{host} is not on the public internet", host=host))
    return allowed[0]
