"""The flags of the studio's cookies, the same for setting and for deleting them."""

from typing import Literal, TypedDict

from starlette.requests import Request

from studio.access_settings import AccessSettings


class CookieFlags(TypedDict):
    """Arguments of `Response.set_cookie` and `delete_cookie`."""

    httponly: bool
    secure: bool
    samesite: Literal["lax", "none"]
    path: str


def choose_flags(settings: AccessSettings, request: Request) -> CookieFlags:
    """Returns the cookie's flags; in a Space's frame the studio is a third party, so `samesite` is none there."""
    is_https = request.headers.get("x-forwarded-proto", request.url.scheme).startswith("https")
    if settings.is_space:
        return {"httponly": True, "secure": True, "samesite": "none", "path": "/"}
    return {"httponly": True, "secure": is_https, "samesite": "lax", "path": "/"}
