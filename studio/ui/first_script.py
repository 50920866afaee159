"""Inserts a script that the browser runs before any other of the page, and what it paints first (first_paint.py).

Gradio's scripts insert custom head content only after the first paint, when they have already captured the browser's
functions. So this script is inserted into the HTML as it is sent.
"""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from studio.ui import first_paint

THEME_SCRIPT = """
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("lumesh.theme"); } catch { /* private mode: follow the system */ }
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
"""

# Gradio's scripts talk to the address that the server thinks it was asked at, which it cannot know behind a proxy that
# is not trusted (api/middleware/auth.py). The browser knows: the page's own folder.
ADDRESS_SCRIPT = """
(() => {
  Object.defineProperty(window, "gradio_config", {
    configurable: true,
    enumerable: true,
    set(config) {
      config.root = new URL(".", location.href).href.replace(/\\/$/, "");
      Object.defineProperty(window, "gradio_config", { value: config, writable: true });
    },
  });
})();
"""

# Who types, or an automated browser that fills the prompt and sends it, may be faster than the page's scripts: what is
# typed outside fields, and that the form was sent, is kept for static/js/create/early.js, which ends this. Without it a
# form that is sent early would load the page anew, with its fields empty.
EARLY_SCRIPT = """
(() => {
  const OTHERS = ["#train", "#gallery", "#presets", "#system"];
  const kept = { text: "", submits: false, stop: () => {
    document.removeEventListener("keydown", press, true);
    document.removeEventListener("submit", send, true);
  } };
  function want(event) {
    event.preventDefault();
    kept.submits = true;
  }
  function send(event) {
    if (event.target.id === "lu-controls") want(event);
  }
  function press(event) {
    const { key } = event;
    if (event.isComposing || OTHERS.includes(location.hash.split("/")[0])) return;
    if (event.ctrlKey || event.metaKey || event.altKey) {
      if (key === "Enter" && !event.altKey) want(event);
      return;
    }
    if (event.target.closest?.("input, textarea, select, [contenteditable]")) return;
    if (key === "Backspace") kept.text = kept.text.slice(0, -1);
    else if (key.length === 1 && (key !== " " || event.target === document.body)) kept.text += key;
  }
  document.addEventListener("keydown", press, true);
  document.addEventListener("submit", send, true);
  window.lumeshEarly = kept;
})();
"""

_HEAD = b"<head>"
_HEAD_ENDS = b"</head>"
_APP = b"<gradio-app"  # all that Gradio's page shows
_CONFIG = b"<script>window.gradio_config"  # 80 kB of JSON; Gradio's scripts and its style sheet come after it
_SCRIPT = f"<script>{THEME_SCRIPT}{ADDRESS_SCRIPT}{EARLY_SCRIPT}</script>".encode()


class FirstScript:
    """ASGI middleware for Gradio's app. Gradio sends its page in one message; answers in several parts are files."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Inserts the scripts at the start of a page's head, and the first paint before Gradio's element."""
        start: Message | None = None

        async def send_with_script(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_page(message):
                start = message
                return
            if start is not None:
                if not message.get("more_body") and _HEAD in (body := message.get("body", b"")):
                    body = _put_first_paint_first(body.replace(_HEAD, _HEAD + _SCRIPT, 1))
                    MutableHeaders(scope=start)["Content-Length"] = str(len(body))
                    message = {**message, "body": body}
                await send(start)
                start = None
            await send(message)

        await self._app(scope, receive, send_with_script)


def _put_first_paint_first(page: bytes) -> bytes:
    """Puts what is painted first before Gradio's element, and what the paint would wait for behind it.

    That is the end of Gradio's head, from its configuration to its style sheet.
    """
    head, end, rest = page.partition(_HEAD_ENDS)
    head, config, late = head.partition(_CONFIG)
    return head + end + rest.replace(_APP, first_paint.HTML.encode() + config + late + _APP, 1)


def _is_page(start: Message) -> bool:
    return MutableHeaders(scope=start).get("content-type", "").startswith("text/html")
