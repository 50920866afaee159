"""The filmstrip: recent results under the canvas, newest first.

static/js/canvas/filmstrip.js fills it.
"""

HTML = """
<nav class="lu-film" id="lu-film" data-text-aria-label="canvas.recent" hidden>
  <div class="lu-film-row" id="lu-film-row"></div>
</nav>
"""
