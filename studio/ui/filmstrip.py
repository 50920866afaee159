"""The filmstrip: recent results under the canvas, newest first.

Filled by static/js/filmstrip.js.
"""

HTML = """
<nav class="lu-film" id="lu-film" aria-label="Recent results" hidden>
  <div class="lu-film-row" id="lu-film-row"></div>
</nav>
"""
