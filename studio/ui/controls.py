"""The left column: the settings of a recipe, and the Generate button.

What people change most stands first; the model's own numbers are folded. It is filled and read by
static/js/create/controls.js, sizes.js, sweep.js, reading.js, unknown.js, prompthistory.js, inputs.js, loras.js,
lorafile.js, styles.js, recipes.js, fold.js and examples.js, the note on a preset's origin by originnote.js; limits and
choices come from `GET /api/v1/models`.
"""

from studio.ui.icons import icon

_ORIGIN = f"""
<div class="lu-origin" id="lu-origin" role="status" hidden>
  <div><p class="lu-origin-title" id="lu-origin-title"></p><p id="lu-origin-text"></p>
    <button type="button" class="lu-button" id="lu-origin-keep" hidden>{icon("bookmark")}<span
      data-text="origin.keep"></span></button></div>
  <button type="button" class="lu-icon-button" id="lu-origin-close"
    data-text-aria-label="common.dismiss">{icon("close")}</button>
</div>
"""

_PROMPT = f"""
<div class="lu-field" data-field="prompt">
  <label class="lu-sr" for="lu-prompt" data-text="setting.prompt"></label>
  <div class="lu-prompt-box">
    <textarea id="lu-prompt" rows="4" autocomplete="off"
      data-text-placeholder="create.promptHint" spellcheck="true" aria-describedby="lu-prompt-message"></textarea>
    <button type="button" class="lu-icon-button" id="lu-prompt-history" aria-haspopup="menu"
      data-text-aria-label="create.history" data-text-title="create.historyHint" hidden>{icon("history")}</button>
    <div class="lu-prompt-foot">
      <button type="button" class="lu-button lu-quiet" id="lu-negative-toggle" aria-expanded="false"
        aria-controls="lu-negative-box">{icon("minus")}<span data-text="setting.negative_prompt"></span></button>
      <button type="button" class="lu-button lu-quiet" id="lu-recipe-choose"
        data-text-aria-label="recipe.read"
        data-text-title="recipe.read">{icon("file")}<span data-text="recipe.fromFile"></span></button>
      <input type="file" id="lu-recipe-file"
        accept="image/png,image/jpeg,image/webp,image/gif,image/avif,video/mp4,text/plain,application/json" hidden>
      <select class="lu-style" id="lu-style" data-text-aria-label="create.style"
        aria-describedby="lu-style-note"></select>
      <span class="lu-prompt-count lu-num" id="lu-prompt-count"></span>
    </div>
    <div class="lu-negative" id="lu-negative-box" data-field="negative_prompt" hidden>
      <label for="lu-negative" id="lu-negative-label" data-text="create.negativeLabel"></label>
      <textarea id="lu-negative" rows="2" data-text-placeholder="create.negativeHint" autocomplete="off"></textarea>
    </div>
  </div>
  <div class="lu-unknown" id="lu-prompt-unknown" role="status" hidden></div>
  <ul class="lu-prompt-notes" id="lu-prompt-notes" role="status" hidden></ul>
  <p class="lu-model-note" id="lu-style-note" hidden></p>
  <div class="lu-sweep" id="lu-sweep" hidden>
    <p class="lu-sweep-count lu-num" id="lu-sweep-count" role="status"></p>
    <ul id="lu-sweep-examples" data-text-aria-label="sweep.first"></ul>
    <div class="lu-sweep-draws" id="lu-draws-box">
      <label><input type="checkbox" id="lu-draws-on"><span data-text="sweep.only"></span></label>
      <input class="lu-slider-value" id="lu-draws" type="number" min="1" max="100" value="8" inputmode="numeric"
        data-text-aria-label="sweep.draws"><label for="lu-draws-on" id="lu-draws-of"></label></div>
    <button type="button" class="lu-queue-link" id="lu-sweep-system" data-text="sweep.makeWildcards" hidden></button>
  </div>
  <p class="lu-message" id="lu-prompt-message" role="alert" data-message="prompt"></p>
  <p class="lu-message" role="alert" data-message="negative_prompt"></p>
</div>
"""

# Without HEIC: an iPhone then hands over a JPEG.
PICTURE_TYPES = ",".join(f"image/{kind}" for kind in ("png", "jpeg", "webp", "avif", "gif", "bmp", "tiff"))

_INPUTS = f"""
<div class="lu-field lu-inputs" id="lu-inputs" data-field="images" role="group" aria-labelledby="lu-inputs-label"
  hidden>
  <div class="lu-label"><span id="lu-inputs-label"></span><span id="lu-inputs-count" role="status"></span></div>
  <div class="lu-inputs-row">
    <ul class="lu-inputs-list" id="lu-inputs-list" role="list"></ul>
    <button type="button" class="lu-inputs-add" id="lu-inputs-add" aria-describedby="lu-inputs-count">
      {icon("image")}<span class="lu-inputs-wide"></span>
      <span class="lu-inputs-narrow" data-text="inputs.choose"></span></button>
    <input type="file" id="lu-inputs-file" accept="{PICTURE_TYPES}" hidden>
  </div>
  <p class="lu-model-note" id="lu-inputs-note" role="status"></p>
  <div class="lu-left" id="lu-inputs-left"></div>
  <div class="lu-fit" id="lu-fit-box" data-field="fit" hidden>
    <div class="lu-segments" id="lu-fit" role="radiogroup" data-text-aria-label="setting.fit">
      <button type="button" role="radio" data-key="crop" data-text="fit.crop"></button>
      <button type="button" role="radio" data-key="pad" data-text="fit.pad"></button>
      <button type="button" role="radio" data-key="stretch" data-text="fit.stretch"></button></div>
    <p class="lu-model-note lu-num" id="lu-fit-note" role="status"></p>
    <p class="lu-message" role="alert" data-message="fit"></p>
  </div>
  <p class="lu-message" role="alert" data-message="images"></p>
</div>
"""

_RECIPE = """
<section class="lu-recipe" id="lu-recipe" aria-labelledby="lu-recipe-title" tabindex="-1" hidden></section>
"""

_EXAMPLES = """
<div class="lu-examples" role="group" data-text-aria-label="create.examples">
  <div class="lu-examples-row" id="lu-examples"></div>
</div>
"""

_MODEL_AND_SIZE = f"""
<div class="lu-field" data-field="model">
  <label class="lu-label" for="lu-model" data-text="setting.model"></label>
  <select class="lu-input" id="lu-model"></select>
  <p class="lu-model-note" id="lu-model-note"></p>
  <details class="lu-knows lu-folded" id="lu-knows" hidden>
    <summary>{icon("chevron")}<span data-text="create.knows"></span></summary><p></p>
  </details>
  <p class="lu-model-note lu-num" id="lu-model-sent" role="status"></p>
  <p class="lu-message" role="alert" data-message="model"></p>
</div>
<div class="lu-field" data-field="shape">
  <div class="lu-label" id="lu-size-label" data-text="setting.shape"></div>
  <div class="lu-sizes" id="lu-sizes" role="radiogroup" aria-labelledby="lu-size-label"></div>
  <button type="button" class="lu-button" id="lu-sizes-more" aria-controls="lu-sizes" hidden></button>
  <p class="lu-size-hint" id="lu-size-hint"></p>
  <p class="lu-message" role="alert" data-message="shape"></p>
</div>
"""


def _slider(field: str, label: str, *, step: str) -> str:
    return f"""
<div class="lu-field lu-slider" data-field="{field}">
  <div class="lu-label"><label for="lu-{field}" id="lu-{field}-label" data-text="{label}"></label>
    <input class="lu-slider-value" id="lu-{field}-value" type="number" step="{step}" inputmode="decimal"
      aria-labelledby="lu-{field}-label lu-as-number"></div>
  <input id="lu-{field}" type="range" step="{step}">
  <p class="lu-message" role="alert" data-message="{field}"></p>
</div>"""


_STRENGTH = f"""
<div id="lu-strength-box" hidden>
  {_slider("strength", "setting.strength", step="0.05")}
  <p class="lu-model-note" data-text="create.strengthHint"></p>
</div>
"""

_LORAS = """
<div class="lu-field lu-loras" id="lu-loras" data-field="loras" role="group" aria-labelledby="lu-loras-label">
  <div class="lu-label"><span id="lu-loras-label" data-text="setting.loras"></span>
    <span class="lu-loras-side"><span class="lu-num" id="lu-loras-count" role="status"></span>
      <button type="button" class="lu-queue-link" id="lu-loras-bring" data-text="loras.bring"
        data-text-title="loras.addFile" hidden></button></span>
    <input type="file" id="lu-loras-file" accept=".safetensors" multiple hidden></div>
  <p class="lu-model-note" id="lu-loras-note" hidden></p>
  <p class="lu-model-note lu-num" id="lu-loras-state" role="status"></p>
  <ul class="lu-loras-list" id="lu-loras-list" role="list"></ul>
  <div class="lu-loras-new" id="lu-loras-new">
    <select class="lu-input" id="lu-loras-choice" data-text-aria-label="loras.choose"></select>
    <button type="button" class="lu-button" id="lu-loras-add" data-text="loras.add"></button></div>
  <p class="lu-message" role="alert" data-message="loras"></p>
</div>
"""

_IMAGES_AND_SEED = f"""
<div class="lu-field" data-field="batch_size">
  <div class="lu-label" id="lu-batch-label" data-text="create.images"></div>
  <div class="lu-segments" id="lu-batch" role="radiogroup" aria-labelledby="lu-batch-label"></div>
  <p class="lu-message" role="alert" data-message="batch_size"></p>
</div>
<div class="lu-field" data-field="seed">
  <div class="lu-label"><label for="lu-seed" data-text="setting.seed"></label>
    <span class="lu-seeds"><label for="lu-seeds" data-text="create.seeds"
      data-text-title="create.seedsHint"></label><input class="lu-slider-value" id="lu-seeds" type="number" min="1"
      max="100" value="1" inputmode="numeric"><button type="button" class="lu-queue-link lu-xyz-open" id="lu-xyz-open"
      data-text="grid.open" data-text-title="grid.hint"></button></span></div>
  <div class="lu-seed">
    <input class="lu-input" id="lu-seed" inputmode="numeric" autocomplete="off"
      data-text-placeholder="create.randomSeed">
    <div class="lu-seed-buttons">
      <button type="button" class="lu-icon-button" id="lu-seed-dice" data-text-aria-label="create.draw"
        data-text-title="create.drawHint">{icon("dice")}</button>
      <button type="button" class="lu-icon-button" id="lu-seed-lock" aria-pressed="false"
        data-text-aria-label="create.keep" data-text-title="create.keep">{icon("unlock")}</button>
    </div>
  </div>
  <p class="lu-message" role="alert" data-message="seed"></p>
</div>
"""

_MORE = f"""
<p id="lu-as-number" data-text="create.asNumber" hidden></p>
<details class="lu-fold lu-folded" id="lu-fold">
  <summary>{icon("chevron")}<span data-text="create.more"></span><span class="lu-fold-facts lu-num"
    id="lu-fold-facts"></span></summary>
  <div class="lu-fold-body">
    <div class="lu-field-row">
      {_slider("steps", "setting.steps", step="1")}{_slider("guidance_scale", "setting.guidance_scale", step="0.5")}
    </div>
    {_slider("guidance_scale_2", "create.secondGuidance", step="0.5")}
    <div class="lu-field" data-field="scheduler">
      <label class="lu-label" for="lu-scheduler" data-text="setting.scheduler"></label>
      <select class="lu-input" id="lu-scheduler"></select>
      <p class="lu-message" role="alert" data-message="scheduler"></p>
    </div>
    <div class="lu-field" data-field="sigmas">
      <label class="lu-label" for="lu-sigmas" data-text="setting.sigmas"></label>
      <input class="lu-input lu-num" id="lu-sigmas" type="text" inputmode="decimal" autocomplete="off" maxlength="2000"
        data-text-placeholder="create.sigmasNone">
      <p class="lu-message" role="alert" data-message="sigmas"></p>
    </div>
    <div class="lu-field" data-field="step_cache">
      <label class="lu-label" for="lu-step_cache" data-text="setting.step_cache"></label>
      <select class="lu-input" id="lu-step_cache"></select>
      <p class="lu-model-note" id="lu-step_cache-note"></p>
      <p class="lu-message" role="alert" data-message="step_cache"></p>
    </div>
    <div class="lu-field-row" id="lu-flow">
      {_slider("flow_shift", "setting.flow_shift", step="0.5")}{_slider("fps", "create.fps", step="1")}
    </div>
  </div>
</details>
"""

HTML = f"""
<form class="lu-controls" id="lu-controls" data-text-aria-label="create.what" novalidate>
  <div class="lu-controls-scroll lu-scroll">
    {_ORIGIN}{_PROMPT}{_RECIPE}{_MODEL_AND_SIZE}{_IMAGES_AND_SEED}{_INPUTS}{_STRENGTH}{_LORAS}{_MORE}{_EXAMPLES}
  </div>
  <div class="lu-dock">
    <p class="lu-message" role="alert" data-message="recipe"></p>
    <div class="lu-editing" id="lu-editing" role="status" hidden>{icon("edit")}
      <p data-text="edit.note"></p>
      <button type="button" class="lu-queue-link" id="lu-editing-end" data-text="edit.stop"></button></div>
    <button type="submit" class="lu-generate" id="lu-generate">
      {icon("spark")}<span data-text="create.generate"></span><kbd>Ctrl ↵</kbd></button>
  </div>
</form>
"""
