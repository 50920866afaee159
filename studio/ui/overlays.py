"""Overlays of the page: the enlarged picture, the menu at a button, what a drop would do, and toasts.

static/js/canvas/zoom.js, core/menu.js, files.js and core/toasts.js open them. Not here: help (help_panel.py).
"""

from studio.ui.icons import icon

HTML = f"""
<dialog class="lu-zoom" id="lu-zoom" data-text-aria-label="canvas.enlarged">
  <img alt="">
  <button type="button" class="lu-icon-button lu-zoom-step" data-step="-1"
    data-text-aria-label="detail.newer">{icon("left")}</button>
  <button type="button" class="lu-icon-button lu-zoom-step" data-step="1"
    data-text-aria-label="detail.older">{icon("chevron")}</button>
  <button type="button" class="lu-button" id="lu-zoom-whole" data-text="canvas.whole"
    data-text-title="canvas.wholeHint">
  </button>
  <button type="button" class="lu-icon-button" data-close autofocus
    data-text-aria-label="common.close">{icon("close")}</button>
</dialog>
<div class="lu-menu" id="lu-menu" role="menu" popover></div>
<div class="lu-drop" id="lu-drop" role="status" hidden><p></p></div>
<div class="lu-toasts" id="lu-toasts" role="status" aria-live="polite"></div>
"""
