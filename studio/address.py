"""The address under which a client reached us, for answers that must carry whole URLs.

A proxy in front says so in `X-Forwarded-Proto` and `X-Forwarded-Host`. Anybody may send these, but whoever does only
changes the links in their own answer.
"""

from starlette.requests import Request


def name_server(request: Request) -> str:
    """Such as `https://lumesh.example.com`, without a slash at the end."""
    scheme = _read_first(request, "x-forwarded-proto")
    host = _read_first(request, "x-forwarded-host") or request.headers.get("host") or request.url.netloc
    return f"{scheme if scheme in ('http', 'https') else request.url.scheme}://{host}"


def _read_first(request: Request, name: str) -> str:
    """Of several proxies the first one is the one that the client saw."""
    return request.headers.get(name, "").split(",")[0].strip()
