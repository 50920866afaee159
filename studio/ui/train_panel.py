"""The Train view: pictures with captions, what to learn from them, and the trainings with curve and samples.

static/js/train/ fills it: pictures.js and tile.js the grid, form.js the rest of the form; trainings.js the cards,
card.js one of them, actions.js its buttons, curve.js its curve, sample.js a sample of it, large.
"""

from studio.ui.controls import PICTURE_TYPES
from studio.ui.icons import icon


def _field(name: str, label: str, control: str, *, note: str = "") -> str:
    shown = f'<p class="lu-model-note" id="lu-train-{name}-note" data-text="{note}"></p>' if note else ""
    return f"""
<div class="lu-field" data-field="{name}">
  <label class="lu-label" for="lu-train-{name}" data-text="{label}"></label>
  {control}
  {shown}
  <p class="lu-message" role="alert" data-message="{name}"></p>
</div>"""


def _line(name: str, label: str, *, longest: int, hint: str, note: str = "") -> str:
    described = f' aria-describedby="lu-train-{name}-note"' if note else ""
    control = (
        f'<input class="lu-input" id="lu-train-{name}" maxlength="{longest}" autocomplete="off"{described}'
        f' data-text-placeholder="{hint}">'
    )
    return _field(name, label, control, note=note)


_PICTURES = f"""
<div class="lu-train-pictures" data-field="pictures">
  <div class="lu-train-bar">
    <h3 id="lu-train-pictures-title" data-text="train.pictures"></h3>
    <span class="lu-num" id="lu-train-count" role="status"></span>
    <button type="button" class="lu-button lu-quiet" id="lu-train-clear" data-text="train.clear" hidden></button>
  </div>
  <button type="button" class="lu-train-drop" id="lu-train-add" data-focus aria-describedby="lu-train-add-note">
    {icon("upload")}<span><b data-text="train.add"></b> <span class="lu-train-wide" data-text="train.addDrop"></span>
    <span id="lu-train-add-note" data-text="train.addNote"></span></span></button>
  <input type="file" id="lu-train-file" accept="{PICTURE_TYPES},video/*,.mkv,.mts,.txt" multiple
    hidden>
  <p class="lu-train-more"><button type="button" class="lu-button lu-quiet" id="lu-train-gallery"
    data-text="train.fromGallery"></button></p>
  <p class="lu-message" role="alert" data-message="pictures"></p>
  <div class="lu-left" id="lu-train-left"></div>
  <div class="lu-train-all" id="lu-train-all-row" data-field="caption" hidden>
    <label class="lu-label" for="lu-train-all" data-text="train.all"></label>
    <div class="lu-share-row"><input class="lu-input" id="lu-train-all" maxlength="2000" autocomplete="off"
      data-text-placeholder="train.allHint">
      <button type="button" class="lu-button" id="lu-train-all-use" data-text="train.allUse"></button></div>
    <p class="lu-message" role="alert" data-message="caption"></p>
  </div>
  <ul class="lu-train-grid" id="lu-train-pictures" role="list" aria-labelledby="lu-train-pictures-title"></ul>
</div>
"""


def _choice(name: str, texts: dict[str, str], *, note: str) -> str:
    """One of several, side by side: key -> its text's name in the catalogue; what it means stands below, in `note`."""
    buttons = "\n".join(
        f'      <button type="button" role="radio" data-key="{key}" data-text="train.{text}"></button>'
        for key, text in texts.items()
    )
    return f"""<div class="lu-field" data-field="{name}">
    <p class="lu-label" id="lu-train-{name}-label" data-text="train.{name}"></p>
    <div class="lu-segments" id="lu-train-{name}" role="radiogroup" aria-labelledby="lu-train-{name}-label"
      aria-describedby="lu-train-{note}">
{buttons}
    </div>
    <p class="lu-model-note lu-num" id="lu-train-{note}"></p>
  </div>"""


_MODEL = _field(
    "model",
    "setting.model",
    '<select class="lu-input" id="lu-train-model" aria-describedby="lu-train-model-note"></select>'
    '<p class="lu-model-note" id="lu-train-model-note" role="status"></p>',
)

_START = """
<div class="lu-field" id="lu-train-start-row" data-field="start_from" hidden>
  <label class="lu-label" for="lu-train-start" data-text="train.start"></label>
  <select class="lu-input" id="lu-train-start" aria-describedby="lu-train-start-note"></select>
  <p class="lu-model-note" id="lu-train-start-note"></p>
  <p class="lu-message" role="alert" data-message="start_from"></p>
</div>"""

_SETTINGS = f"""
<div class="lu-train-settings">
  <div class="lu-train-fields lu-scroll">
  {_line("trigger", "train.trigger", longest=200, hint="train.triggerHint", note="train.triggerNote")}
  {_line("name", "train.name", longest=120, hint="train.nameHint")}
  {_MODEL}
  {_START}
  {_choice("strength", {"gentle": "gentle", "usual": "usual", "strong": "strong"}, note="numbers")}
  {_choice("keep", {"off": "keepOff", "scenes": "keepScenes", "prior": "keepPrior"}, note="keep-note")}
  <div class="lu-field" id="lu-train-prior-row" data-field="prior_prompts" hidden>
    <label class="lu-label" for="lu-train-prior" data-text="train.prior"></label>
    <textarea class="lu-input lu-area" id="lu-train-prior" rows="3" autocomplete="off"
      data-text-placeholder="train.priorHint"></textarea>
    <p class="lu-message" role="alert" data-message="prior_prompts"></p>
  </div>
  {_line("sample", "train.sample", longest=2000, hint="train.sampleHint")}
  </div>
  <div class="lu-train-end">
  <p class="lu-train-cost lu-num" id="lu-train-cost" role="status"></p>
  <p class="lu-message" role="alert" data-message="training"></p>
  <button type="submit" class="lu-button lu-accent lu-train-go" id="lu-train-go"
    aria-keyshortcuts="Control+Enter Meta+Enter">{icon("spark")}<span
    data-text="train.go"></span><kbd aria-hidden="true">Ctrl ↵</kbd></button>
  <p class="lu-model-note" data-text="train.shared"></p>
  </div>
</div>
"""

_SAMPLE = f"""
<dialog class="lu-zoom lu-sample" id="lu-sample" data-text-aria-label="train.sampleLarge">
  <figure><img id="lu-sample-picture" alt="">
    <figcaption class="lu-num" id="lu-sample-words" role="status"></figcaption></figure>
  <button type="button" class="lu-icon-button lu-zoom-step" data-step="-1"
    data-text-aria-label="detail.newer">{icon("left")}</button>
  <button type="button" class="lu-icon-button lu-zoom-step" data-step="1"
    data-text-aria-label="detail.older">{icon("chevron")}</button>
  <button type="button" class="lu-icon-button" data-text-aria-label="common.close">{icon("close")}</button>
</dialog>
"""

HTML = f"""
<section class="lu-train lu-scroll" id="lu-train" aria-labelledby="lu-train-title">
  <div class="lu-train-head">
    <h2 id="lu-train-title" tabindex="-1" data-text="view.train"></h2>
    <p data-text="train.lead"></p>
  </div>
  <p class="lu-message" id="lu-train-message" role="alert"></p>
  <p class="lu-sr" id="lu-train-live" role="status"></p>
  <p class="lu-refused" id="lu-train-refused" data-text="train.refused" hidden></p>
  <div class="lu-train-cards" id="lu-train-cards"></div>
  <form class="lu-train-form" id="lu-train-form" data-text-aria-label="train.new" novalidate>
    {_PICTURES}
    {_SETTINGS}
  </form>
  <details class="lu-train-earlier" id="lu-train-earlier" hidden>
    <summary data-text="train.earlier"></summary>
    <div class="lu-train-cards" id="lu-train-ended"></div>
  </details>
  {_SAMPLE}
</section>
"""
