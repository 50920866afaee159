"""The right column: what runs, what waits and why, what ended without a picture.

Filled by static/js/queue.js.
"""

HTML = """
<aside class="lu-queue" id="lu-queue" aria-label="Queue">
  <div class="lu-queue-head"><h2>Queue</h2><span class="lu-queue-total lu-num" id="lu-queue-total"></span></div>
  <div class="lu-queue-list lu-scroll" id="lu-queue-list"></div>
</aside>
"""
