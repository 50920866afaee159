"""The address under which a client reached us, for answers that contain absolute URLs.

A reverse proxy sends it in `X-Forwarded-Proto` and `X-Forwarded-Host`. These are not checked: a client that forges them
only changes the links in its own answer.
"""

from starlette.requests import Request


def name_server(request: Request) -> str:
    """Returns our base URL, such as `https://lumesh.example.com`, without a slash at the end."""
    scheme = _read_first(request, "x-forwarded-proto")
    host = _read_first(request, "x-forwarded-host") or request.headers.get("host") or request.url.netloc
    return f"{scheme if scheme in ('http', 'https') else request.url.scheme}://{host}"


def _read_first(request: Request, name: str) -> str:
    """Returns the first value of a header: of several proxies, the first is the one that the client reached."""
    return request.headers.get(name, "").split(",")[0].strip()
