"""What lies over the page: the big picture, the list of keys, short messages.

Opened by static/js/zoom.js, keys.js and toasts.js.
"""

from studio.ui.icons import icon

_KEYS = (
    ("Generate", ("Ctrl", "Enter")),
    ("Write the prompt", ("/",)),
    ("Newer and older results", ("←", "→")),
    ("Enlarge the picture", ("Z",)),
    ("Download", ("D",)),
    ("Use these settings", ("U",)),
    ("Use the picture as input", ("I",)),
    ("Copy the prompt", ("C",)),
    ("Light or dark", ("T",)),
    ("Close, or back to all images", ("Esc",)),
    ("These keys", ("?",)),
)


def _row(action: str, keys: tuple[str, ...]) -> str:
    return f"<dt>{action}</dt><dd>{''.join(f'<kbd>{key}</kbd>' for key in keys)}</dd>"


HTML = f"""
<dialog class="lu-zoom" id="lu-zoom" aria-label="Enlarged picture">
  <img alt="">
  <button type="button" class="lu-icon-button lu-zoom-step" data-step="-1" aria-label="Newer">{icon("left")}</button>
  <button type="button" class="lu-icon-button lu-zoom-step" data-step="1" aria-label="Older">{icon("chevron")}</button>
  <button type="button" class="lu-icon-button" data-close autofocus aria-label="Close">{icon("close")}</button>
</dialog>
<dialog class="lu-keys" id="lu-keys" aria-labelledby="lu-keys-title">
  <div class="lu-keys-head"><h2 id="lu-keys-title">Keyboard shortcuts</h2>
    <button type="button" class="lu-icon-button" data-close aria-label="Close">{icon("close")}</button></div>
  <dl>{"".join(_row(action, keys) for action, keys in _KEYS)}</dl>
</dialog>
<div class="lu-toasts" id="lu-toasts" role="status" aria-live="polite"></div>
"""
