"""Whether a request comes from our own page, from a script, or from another site's page.

Browsers say where a request comes from (`Sec-Fetch-Site`), which holds behind any proxy, but only where the page came
over HTTPS or from this machine; elsewhere they send `Origin`, which must be the studio's own address. Scripts send
neither and count as ours: they have no visitor's cookie that they could misuse.
"""

from urllib.parse import urlsplit

from starlette.datastructures import Headers

OWN_SITES = frozenset({"same-origin", "none"})  # "none": the visitor typed the address


def is_own_page(headers: Headers) -> bool:
    """Tells whether our own page or a script asks. Other sites cannot set `X-Forwarded-Host`: preflights fail."""
    came_from = headers.get("sec-fetch-site")
    if came_from is not None:
        return came_from in OWN_SITES
    origin = headers.get("origin")
    if origin is None:
        return True
    hosts = (headers.get("host"), headers.get("x-forwarded-host"))
    return bool(netloc := urlsplit(origin).netloc) and netloc in hosts
