"""The network that a client's address stands for: one IPv4 address, or the /64 that a subscriber of IPv6 gets."""

import ipaddress

SUBSCRIBER_BITS = 64


def find_network(address: str) -> str:
    """Returns the address to count a client by; a text that is no address stands for itself."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.ip_network((ip, SUBSCRIBER_BITS), strict=False))
