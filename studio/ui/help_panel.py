"""The Help dialog: how to, in a few lines each; the manual's pages, keys, what phases and states mean, where files are.

static/js/system/help.js writes the keys from core/keymap.js, the one place that defines them.
Not here: the pages themselves (manual.py).
"""

from pipelines.stages import PHASES
from studio.ui.icons import icon
from studio.ui.manual import PAGES, title_id

_GUIDE = ("prompt", "choices", "wildcards", "weights", "chunks", "loras", "inputs", "models", "tokens")
_STATES = ("warm", "disk", "cold")
_FILES = {
    "outputs/": "help.outputs",
    "jobs.db": "help.database",
    "presets/": "help.presets",
    "wildcards/": "help.wildcards",
    "models/": "help.models",
    "loras/": "help.loras",
    "packs/": "help.packs",
    "cache/": "help.cache",
    "logs/worker.log": "help.log",
}


def _explain(entries: dict[str, str]) -> str:
    """Lists names with their meanings, both by message id."""
    rows = [f'<dt data-text="{name}"></dt><dd data-text="{meaning}"></dd>' for name, meaning in entries.items()]
    return f'<dl class="lu-help-list">{"".join(rows)}</dl>'


def _list_files() -> str:
    rows = [f'<dt>{name}</dt><dd data-text="{holds}"></dd>' for name, holds in _FILES.items()]
    return f'<dl class="lu-help-list lu-help-files">{"".join(rows)}</dl>'


def _list_pages() -> str:
    """Lists the manual's pages as links to a new tab, because they must not replace the studio."""
    rows = [
        f'<li><a class="lu-link" href="help/{name}" hreflang="en" target="_blank"'
        f' data-text="{title_id(name)}"></a></li>'
        for name in PAGES
    ]
    return f'<ul class="lu-help-pages">{"".join(rows)}</ul>'


HTML = f"""
<dialog class="lu-keys" id="lu-keys" aria-labelledby="lu-keys-title">
  <div class="lu-keys-head"><h2 id="lu-keys-title" data-text="help.title"></h2>
    <button type="button" class="lu-icon-button" data-close
      data-text-aria-label="common.close">{icon("close")}</button></div>
  <div class="lu-help lu-scroll" tabindex="0" role="region" data-text-aria-label="help.title">
    <section class="lu-help-wide" aria-labelledby="lu-help-guide"><h3 id="lu-help-guide" data-text="guide.title"></h3>
      {_explain({f"guide.{name}": f"guide.{name}Text" for name in _GUIDE})}</section>
    <section class="lu-help-wide" aria-labelledby="lu-help-manual">
      <h3 id="lu-help-manual" data-text="manual.title"></h3>
      {_list_pages()}</section>
    <section aria-labelledby="lu-help-keys"><h3 id="lu-help-keys" data-text="help.keys"></h3>
      <p class="lu-model-note" data-text="help.letters"></p>
      <label class="lu-help-switch"><input type="checkbox" id="lu-single-keys"
        aria-describedby="lu-single-keys-note"><span data-text="help.singleKeys"></span></label>
      <p class="lu-model-note" id="lu-single-keys-note" data-text="help.singleKeysNote"></p>
      <div id="lu-keymap"></div></section>
    <div>
      <section aria-labelledby="lu-help-phases"><h3 id="lu-help-phases" data-text="help.phases"></h3>
        {_explain({f"phase.{phase}": f"meaning.{phase}" for phase in PHASES})}</section>
      <section aria-labelledby="lu-help-states"><h3 id="lu-help-states" data-text="help.states"></h3>
        {_explain({f"size.{state}": f"size.{state}Hint" for state in _STATES})}</section>
      <section aria-labelledby="lu-help-files"><h3 id="lu-help-files" data-text="help.files"></h3>
        <p class="lu-model-note" id="lu-help-folder" data-text="help.folder"></p>
        {_list_files()}</section>
      <section aria-labelledby="lu-help-more"><h3 id="lu-help-more" data-text="help.scripts"></h3>
        <p class="lu-model-note"><span data-text="help.rest"></span>
          <a class="lu-link" href="api/docs">api/docs</a></p>
      </section>
    </div>
  </div>
</dialog>
"""
