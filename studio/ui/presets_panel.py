"""The Presets view: cards to search, make, share and import.

static/js/presets/presets.js fills it; share.js, savepreset.js and hub.js fill the dialogs.
"""

from studio.ui.icons import icon


def _field(name: str, label: str, control: str) -> str:
    return f"""
<div class="lu-field" data-field="{name}">
  <label class="lu-label" for="lu-save-{name}" data-text="{label}"></label>
  {control}
  <p class="lu-message" role="alert" data-message="{name}"></p>
</div>"""


def _line(name: str, label: str, *, longest: int, hint: str = "") -> str:
    shown = f' data-text-placeholder="{hint}"' if hint else ""
    control = f'<input class="lu-input" id="lu-save-{name}" maxlength="{longest}" autocomplete="off"{shown}>'
    return _field(name, label, control)


_SAVE = f"""
<dialog class="lu-dialog" id="lu-save" aria-labelledby="lu-save-heading">
  <form id="lu-save-form" novalidate>
    <div class="lu-dialog-head"><h2 id="lu-save-heading" data-text="preset.save"></h2>
      <button type="button" class="lu-icon-button" data-close
        data-text-aria-label="common.close">{icon("close")}</button></div>
    <div class="lu-dialog-body">
      <img class="lu-save-thumb" id="lu-save-thumb" alt="">
      {_line("title", "preset.title", longest=80)}
      {
    _field(
        "description",
        "preset.description",
        '<textarea class="lu-input lu-area" id="lu-save-description" rows="2" maxlength="600"></textarea>',
    )
}
      <div class="lu-field-row">
        {_line("author", "preset.author", longest=60, hint="preset.authorHint")}
        {_line("licence", "preset.licence", longest=120, hint="preset.licenceHint")}
      </div>
      {_line("tags", "preset.tags", longest=200, hint="preset.tagsHint")}
      <label class="lu-check"><input type="checkbox" id="lu-save-seed" checked>
        <span id="lu-save-seed-text" data-text="preset.keepSeed"></span></label>
      <p class="lu-model-note" id="lu-save-note"></p>
      <p class="lu-message" role="alert" data-message="preset"></p>
    </div>
    <div class="lu-dialog-foot">
      <button type="submit" class="lu-button lu-accent" id="lu-save-button">{icon("bookmark")}<span
        data-text="preset.saveButton"></span></button></div>
  </form>
</dialog>
"""


def _link(name: str, label: str, copy: str, note: str) -> str:
    return f"""
<div class="lu-field">
  <label class="lu-label" for="lu-share-{name}" data-text="{label}"></label>
  <div class="lu-share-row"><input class="lu-input" id="lu-share-{name}" readonly>
    <button type="button" class="lu-button" data-copy="lu-share-{name}"
      data-text-aria-label="{copy}">{icon("copy")}<span data-text="common.copy"></span></button></div>
  <p class="lu-model-note" data-text="{note}"></p>
</div>"""


_SHARE = f"""
<dialog class="lu-dialog" id="lu-share" aria-labelledby="lu-share-heading">
  <div class="lu-dialog-head"><h2 id="lu-share-heading" data-text="share.share"></h2>
    <button type="button" class="lu-icon-button" data-close
        data-text-aria-label="common.close">{icon("close")}</button></div>
  <div class="lu-dialog-body">
    {_link("self", "share.self", "share.copySelf", "share.selfNote")}
    {_link("here", "share.here", "share.copyHere", "share.hereNote")}
    <figure class="lu-share-code"><img id="lu-share-code" data-text-alt="share.code" hidden>
      <figcaption class="lu-model-note" id="lu-share-code-note"></figcaption></figure>
  </div>
  <div class="lu-dialog-foot">
    <a class="lu-button" id="lu-share-file" download>{icon("download")}<span data-text="share.file"></span></a></div>
</dialog>
"""

_HUB = f"""
<dialog class="lu-dialog" id="lu-hub" aria-labelledby="lu-hub-heading">
  <form id="lu-hub-form" novalidate>
    <div class="lu-dialog-head"><h2 id="lu-hub-heading" data-text="hub.title"></h2>
      <button type="button" class="lu-icon-button" data-close
        data-text-aria-label="common.close">{icon("close")}</button></div>
    <div class="lu-dialog-body">
      <div class="lu-field">
        <label class="lu-label" for="lu-hub-repo" data-text="hub.repo"></label>
        <div class="lu-share-row"><input class="lu-input" id="lu-hub-repo"
          data-text-placeholder="hub.repoHint" maxlength="200" autocomplete="off" autocapitalize="off"
          spellcheck="false">
          <button type="submit" class="lu-button" id="lu-hub-list" data-text="hub.look"></button></div>
      </div>
      <div class="lu-field">
        <label class="lu-label" for="lu-hub-token" data-text="hub.token"></label>
        <input class="lu-input" id="lu-hub-token" type="password" autocomplete="off" maxlength="200">
        <p class="lu-model-note" data-text="hub.tokenNote"></p>
      </div>
      <fieldset class="lu-hub-found" id="lu-hub-found" hidden>
        <legend class="lu-label" data-text="hub.found"></legend>
        <div id="lu-hub-names"></div></fieldset>
      <p class="lu-model-note" id="lu-hub-note" role="status"></p>
      <p class="lu-message" id="lu-hub-message" role="alert"></p>
    </div>
    <div class="lu-dialog-foot">
      <button type="button" class="lu-button" id="lu-hub-push" data-text="hub.push"></button>
      <button type="button" class="lu-button lu-accent" id="lu-hub-pull" data-text="hub.pull" hidden></button></div>
  </form>
</dialog>
"""

HTML = f"""
<section class="lu-presets lu-scroll" id="lu-presets" aria-labelledby="lu-presets-title">
  <div class="lu-presets-head">
    <div class="lu-presets-title"><h2 id="lu-presets-title" tabindex="-1" data-text="view.presets"></h2>
      <span class="lu-num" id="lu-presets-count" role="status"></span></div>
    <div class="lu-presets-tools">
      <input type="search" class="lu-input" id="lu-presets-search" data-text-aria-label="preset.search" maxlength="200"
        data-text-placeholder="preset.search" autocomplete="off">
      <select class="lu-input" id="lu-presets-model" data-text-aria-label="setting.model"></select>
      <button type="button" class="lu-button" id="lu-presets-import">{icon("upload")}<span
        data-text="preset.import"></span></button>
      <button type="button" class="lu-button" id="lu-presets-hub">{icon("cloud")}<span
        data-text="hub.open"></span></button>
      <a class="lu-button" id="lu-presets-export" download hidden>{icon("download")}<span
        data-text="preset.export"></span></a>
      <input type="file" id="lu-presets-file" accept=".json,.zip,application/json,application/zip" multiple hidden>
    </div>
    <div class="lu-presets-tags" id="lu-presets-tags" role="group" data-text-aria-label="preset.tagList"></div>
    <p class="lu-message" id="lu-presets-message" role="alert"></p>
    <div class="lu-presets-known" id="lu-presets-known" role="status" hidden></div>
  </div>
  <ul class="lu-presets-grid" id="lu-presets-grid" role="list"></ul>
</section>
{_SAVE}
{_SHARE}
{_HUB}
"""
