"""Security headers of every answer: Content-Security-Policy with frame-ancestors, nosniff, no referrer.

Gradio's page needs inline scripts, inline styles and eval, so its CSP allows these; the CSP of answers that are no
pages allows no scripts at all. A Space may be framed by huggingface.co.
"""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PAGE_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; media-src 'self' blob:; "
    "font-src 'self' data:; worker-src 'self' blob:; object-src 'none'; base-uri 'self'; form-action 'self'"
)
# A browser shows a single picture or video on a page of its own, which has a style and the file itself.
FILE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; media-src 'self'"


class SafeHeaders:
    """ASGI middleware that adds the headers, without overriding those that a route sets itself."""

    def __init__(self, app: ASGIApp, *, is_space: bool, is_shared: bool = False) -> None:
        self._app = app
        frames = "'self' https://huggingface.co https://*.hf.space" if is_space else "'self'"
        self._ancestors = f"frame-ancestors {frames}"
        self._always = {
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
            # Pages of other sites that are let in show pictures by their address.
            "Cross-Origin-Resource-Policy": "cross-origin" if is_shared else "same-origin",
        }
        if not is_space:
            self._always["X-Frame-Options"] = "SAMEORIGIN"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Adds the headers when the answer starts."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._always.items():
                    headers.setdefault(name, value)
                policy = headers.get("Content-Security-Policy") or _choose_policy(headers)
                headers["Content-Security-Policy"] = f"{policy}; {self._ancestors}"
            await send(message)

        await self._app(scope, receive, send_safely)


def _choose_policy(headers: MutableHeaders) -> str:
    return PAGE_POLICY if headers.get("content-type", "").startswith("text/html") else FILE_POLICY
