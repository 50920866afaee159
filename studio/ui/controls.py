"""The left column: what to make, and the Generate button.

One prompt and one button are open; the rest has the model's defaults. Filled and read by static/js/controls.js,
sizes.js, inputs.js and examples.js; limits and choices come from `GET /api/v1/models`.
"""

from studio.ui.icons import icon

_PROMPT = f"""
<div class="lu-field" data-field="prompt">
  <label class="lu-sr" for="lu-prompt">Prompt</label>
  <div class="lu-prompt-box">
    <textarea id="lu-prompt" rows="4" maxlength="2000" placeholder="Describe the picture…" autocomplete="off"
      spellcheck="true" aria-describedby="lu-prompt-message"></textarea>
    <div class="lu-prompt-foot">
      <button type="button" class="lu-button lu-quiet" id="lu-negative-toggle" aria-expanded="false"
        aria-controls="lu-negative-box">{icon("minus")}Negative prompt</button>
      <span class="lu-prompt-count lu-num" id="lu-prompt-count"></span>
    </div>
    <div class="lu-negative" id="lu-negative-box" data-field="negative_prompt" hidden>
      <label for="lu-negative">What the picture should not show</label>
      <textarea id="lu-negative" rows="2" maxlength="2000" placeholder="blurry, people…" autocomplete="off"></textarea>
    </div>
  </div>
  <p class="lu-message" id="lu-prompt-message" role="alert" data-message="prompt"></p>
  <p class="lu-message" role="alert" data-message="negative_prompt"></p>
</div>
"""

_INPUTS = f"""
<div class="lu-field lu-inputs" id="lu-inputs" data-field="images" role="group" aria-labelledby="lu-inputs-label"
  hidden>
  <div class="lu-label"><span id="lu-inputs-label"></span><span id="lu-inputs-count" role="status"></span></div>
  <div class="lu-inputs-row">
    <ul class="lu-inputs-list" id="lu-inputs-list" role="list"></ul>
    <button type="button" class="lu-inputs-add" id="lu-inputs-add" aria-describedby="lu-inputs-count">
      {icon("image")}<span class="lu-inputs-wide"></span><span class="lu-inputs-narrow">Choose a picture</span></button>
    <input type="file" id="lu-inputs-file" accept="image/png,image/jpeg,image/webp" hidden>
  </div>
  <p class="lu-message" role="alert" data-message="images"></p>
</div>
"""

_EXAMPLES = f"""
<div class="lu-examples" role="group" aria-label="Example prompts">
  <div class="lu-examples-row" id="lu-examples"></div>
</div>
<details class="lu-knows" id="lu-knows" hidden>
  <summary>{icon("chevron")}What this model knows</summary><p></p>
</details>
"""

_MODEL_AND_SIZE = """
<div class="lu-field" data-field="model">
  <label class="lu-label" for="lu-model">Model</label>
  <select class="lu-input" id="lu-model"></select>
  <p class="lu-model-note" id="lu-model-note"></p>
  <p class="lu-message" role="alert" data-message="model"></p>
</div>
<div class="lu-field" data-field="shape">
  <div class="lu-label" id="lu-size-label">Size</div>
  <div class="lu-sizes" id="lu-sizes" role="radiogroup" aria-labelledby="lu-size-label"></div>
  <p class="lu-size-hint" id="lu-size-hint"></p>
  <p class="lu-message" role="alert" data-message="shape"></p>
</div>
"""


def _slider(field: str, label: str, *, step: str) -> str:
    return f"""
<div class="lu-field lu-slider" data-field="{field}">
  <div class="lu-label"><label for="lu-{field}">{label}</label>
    <input class="lu-slider-value" id="lu-{field}-value" type="number" step="{step}" inputmode="decimal"
      aria-label="{label}, as a number"></div>
  <input id="lu-{field}" type="range" step="{step}">
  <p class="lu-message" role="alert" data-message="{field}"></p>
</div>"""


_SETTINGS = f"""
<div class="lu-field-row">{_slider("steps", "Steps", step="1")}{_slider("guidance_scale", "Guidance", step="0.5")}</div>
<div class="lu-field-row">
  <div class="lu-field" data-field="scheduler">
    <label class="lu-label" for="lu-scheduler">Scheduler</label>
    <select class="lu-input" id="lu-scheduler"></select>
    <p class="lu-message" role="alert" data-message="scheduler"></p>
  </div>
  <div class="lu-field" data-field="batch_size">
    <div class="lu-label" id="lu-batch-label">Images</div>
    <div class="lu-segments" id="lu-batch" role="radiogroup" aria-labelledby="lu-batch-label"></div>
    <p class="lu-message" role="alert" data-message="batch_size"></p>
  </div>
</div>
<div class="lu-field-row" id="lu-flow">
  {_slider("flow_shift", "Flow shift", step="0.5")}{_slider("fps", "Frames/s", step="1")}
</div>
<div class="lu-field" data-field="seed">
  <label class="lu-label" for="lu-seed">Seed</label>
  <div class="lu-seed">
    <input class="lu-input" id="lu-seed" inputmode="numeric" autocomplete="off" placeholder="Random each time">
    <div class="lu-seed-buttons">
      <button type="button" class="lu-icon-button" id="lu-seed-dice" aria-label="Draw a new seed"
        title="Draw a new seed and keep it">{icon("dice")}</button>
      <button type="button" class="lu-icon-button" id="lu-seed-lock" aria-pressed="false"
        aria-label="Keep this seed" title="Keep this seed">{icon("unlock")}</button>
    </div>
  </div>
  <p class="lu-message" role="alert" data-message="seed"></p>
</div>
"""

HTML = f"""
<form class="lu-controls" id="lu-controls" aria-label="What to make" novalidate>
  <div class="lu-controls-scroll lu-scroll">{_PROMPT}{_INPUTS}{_EXAMPLES}{_MODEL_AND_SIZE}{_SETTINGS}</div>
  <div class="lu-dock">
    <p class="lu-message" role="alert" data-message="recipe"></p>
    <button type="submit" class="lu-generate" id="lu-generate">
      {icon("spark")}<span>Generate</span><kbd>Ctrl ↵</kbd></button>
  </div>
</form>
"""
