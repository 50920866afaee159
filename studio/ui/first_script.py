"""A script that a browser runs before any other of the page.

Gradio adds what it is told to have in its head with its own scripts: after its first paint, and after they have taken
hold of the browser's functions. So this one goes into the HTML on its way out.
"""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

THEME_SCRIPT = """
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("lumesh.theme"); } catch { /* private mode: follow the system */ }
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
"""

# Gradio's sign of loading, taken away long ago, counts on in every frame: 5 % of a core for each open tab. Whatever has
# asked for so many frames in a row, each from within the last, gets one a second from then on.
FRAMES_SCRIPT = """
(() => {
  const next = requestAnimationFrame.bind(window), counts = new Map();
  const MOST = 120;
  let running = null;
  window.requestAnimationFrame = (draw) => {
    const name = String(draw), count = name === running ? counts.get(name) + 1 : 0;
    counts.set(name, count);
    const call = (now_ms) => {
      running = name;
      try { draw(now_ms); } finally { running = null; }
    };
    return count > MOST ? setTimeout(next, 1000, call) : next(call);
  };
})();
"""

_HEAD = b"<head>"
_SCRIPT = f"<script>{THEME_SCRIPT}{FRAMES_SCRIPT}</script>".encode()


class FirstScript:
    """ASGI middleware of Gradio's app, which sends its page whole; what comes in parts is a file."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Puts the scripts where a page's head begins."""
        start: Message | None = None

        async def send_with_script(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_page(message):
                start = message
                return
            if start is not None:
                if not message.get("more_body") and _HEAD in (body := message.get("body", b"")):
                    body = body.replace(_HEAD, _HEAD + _SCRIPT, 1)
                    MutableHeaders(scope=start)["Content-Length"] = str(len(body))
                    message = {**message, "body": body}
                await send(start)
                start = None
            await send(message)

        await self._app(scope, receive, send_with_script)


def _is_page(start: Message) -> bool:
    return MutableHeaders(scope=start).get("content-type", "").startswith("text/html")
