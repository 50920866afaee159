"""The centre: the picture, live while it is made, and the bar below it.

Three views share the place: nothing made yet, pictures, and a notice (failed, cancelled, interrupted).
static/js/canvas/canvas.js and bar.js fill it, ephemeral.js and lacking.js what stands above; the live region tells
screen readers about phases, not about every step.
"""

HTML = """
<section class="lu-stage" data-text-aria-label="canvas.result">
  <div class="lu-alerts">
    <p class="lu-alert" id="lu-alert" role="alert" hidden></p>
    <div class="lu-banner" id="lu-ephemeral" role="status" hidden>
      <p data-text="canvas.ephemeral"></p>
      <button type="button" class="lu-button lu-quiet" id="lu-ephemeral-close" data-text="common.dismiss"></button>
    </div>
    <div class="lu-unknown" id="lu-lacking" role="status" hidden></div>
  </div>
  <div class="lu-view" id="lu-view" data-shows="nothing">
    <div class="lu-empty" id="lu-empty" hidden>
      <div><h2 data-text="canvas.describe"></h2><p class="lu-empty-lead" data-text="canvas.start"></p></div>
      <div class="lu-cards" id="lu-cards"></div>
    </div>
    <div class="lu-frames" id="lu-frames" hidden></div>
    <div class="lu-notice" id="lu-notice" role="alert" hidden></div>
  </div>
  <div class="lu-bar" id="lu-bar" hidden></div>
  <p class="lu-sr" id="lu-live" role="status" aria-live="polite"></p>
</section>
"""
