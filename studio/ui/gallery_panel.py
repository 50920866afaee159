"""The gallery: all outputs, searched by words and filters; the view of one output, and the comparison of two.

It is filled by static/js/gallery/gallery.js and grid.js, detail.js and compare.js. The two overlays are part of the
gallery and not modal dialogs: a message that offers to undo must stay within reach.
"""

from studio.ui.icons import icon


def _select(name: str, label: str) -> str:
    return f'<select class="lu-input" id="lu-gallery-{name}" data-text-aria-label="{label}"></select>'


def _day(name: str, label: str) -> str:
    return (
        f'<label class="lu-gallery-day"><span data-text="{label}"></span>'
        f'<input type="date" class="lu-input" id="lu-gallery-{name}"></label>'
    )


def _toggle(name: str, label: str, picture: str) -> str:
    return (
        f'<button type="button" class="lu-button" id="lu-gallery-{name}" aria-pressed="false">'
        f'{icon(picture)}<span data-text="{label}"></span></button>'
    )


_TOOLS = f"""
<div class="lu-gallery-head">
  <div class="lu-gallery-title"><h2 id="lu-gallery-title" tabindex="-1" data-text="view.gallery"></h2>
    <span class="lu-num" id="lu-gallery-count" role="status"></span>
    <button type="button" class="lu-button lu-accent" id="lu-gallery-new" hidden></button>
    <span class="lu-gallery-modes">
      <button type="button" class="lu-button" id="lu-gallery-everyone" aria-pressed="false" data-text="gallery.everyone"
        hidden></button>
      <button type="button" class="lu-button" id="lu-gallery-purge" data-text="trash.empty" hidden></button>
      {_toggle("choose", "gallery.select", "check")}
      {_toggle("trash", "trash.title", "trash")}</span></div>
  <div class="lu-gallery-tools" role="search">
    <input type="search" class="lu-input" id="lu-gallery-search" data-text-aria-label="gallery.search" maxlength="200"
      data-text-placeholder="gallery.search" autocomplete="off">
    <div class="lu-gallery-filters">
      {_toggle("favourite", "gallery.favourites", "star")}
      {_select("model", "setting.model")}
      {_select("shape", "setting.shape")}
      {_select("date", "filter.when")}
      <span class="lu-gallery-days" id="lu-gallery-days"
        hidden>{_day("from", "filter.from")}{_day("to", "filter.to")}</span>
      {_select("kind", "filter.kind")}
      {_select("tag", "filter.tag")}
      {_select("preset", "filter.preset")}
      <button type="button" class="lu-button" id="lu-gallery-clear" data-text="filter.clear" hidden></button>
    </div>
  </div>
  <p class="lu-message" id="lu-gallery-message" role="alert"></p>
</div>
"""

_DETAIL = f"""
<section class="lu-detail" id="lu-detail" role="dialog" aria-labelledby="lu-detail-title" hidden>
  <div class="lu-detail-stage" id="lu-detail-stage"></div>
  <div class="lu-detail-side lu-scroll" id="lu-detail-side">
    <div class="lu-detail-head">
      <h2 class="lu-num" id="lu-detail-title" tabindex="-1"></h2>
      <button type="button" class="lu-icon-button" id="lu-detail-newer" data-text-aria-label="detail.newer"
        data-text-title="detail.newer" data-key="←">{icon("left")}</button>
      <button type="button" class="lu-icon-button" id="lu-detail-older" data-text-aria-label="detail.older"
        data-text-title="detail.older" data-key="→">{icon("chevron")}</button>
      <button type="button" class="lu-icon-button" id="lu-detail-close" data-text-aria-label="common.close"
        data-text-title="common.close" data-key="Esc">{icon("close")}</button>
    </div>
    <div id="lu-detail-body"></div>
  </div>
</section>
"""

_COMPARE = f"""
<section class="lu-compare" id="lu-compare" role="dialog" aria-labelledby="lu-compare-title" hidden>
  <div class="lu-compare-head">
    <h2 id="lu-compare-title" tabindex="-1" data-text="compare.title"></h2>
    <span class="lu-compare-verdict lu-num" id="lu-compare-verdict" role="status"></span>
    <div class="lu-segments" id="lu-compare-mode" role="radiogroup" data-text-aria-label="compare.how">
      <button type="button" role="radio" data-key="slider" data-text="compare.slider"></button>
      <button type="button" role="radio" data-key="beside" data-text="compare.beside"></button>
    </div>
    <button type="button" class="lu-button" id="lu-compare-swap" data-text="compare.swap"></button>
    <button type="button" class="lu-icon-button" id="lu-compare-close" data-text-aria-label="common.close"
      data-text-title="common.close" data-key="Esc">{icon("close")}</button>
  </div>
  <div class="lu-compare-stage" id="lu-compare-stage"></div>
  <div class="lu-compare-diff lu-scroll" id="lu-compare-diff"></div>
</section>
"""

_TAGS = f"""
<dialog class="lu-dialog" id="lu-tags" aria-labelledby="lu-tags-title">
  <form method="dialog">
    <div class="lu-dialog-head"><h2 id="lu-tags-title"></h2>
      <button type="button" class="lu-icon-button" data-close
        data-text-aria-label="common.close">{icon("close")}</button></div>
    <div class="lu-dialog-body"><div class="lu-field">
      <label class="lu-label" for="lu-tags-text" data-text="gallery.tags"></label>
      <input class="lu-input" id="lu-tags-text" maxlength="200" autocomplete="off" spellcheck="false">
      <div class="lu-tags-known" id="lu-tags-known"></div>
    </div></div>
    <div class="lu-dialog-foot">
      <button type="submit" class="lu-button lu-accent" data-text="gallery.addTag"></button></div>
  </form>
</dialog>
"""

HTML = f"""
<section class="lu-gallery" id="lu-gallery" aria-labelledby="lu-gallery-title">
  <div class="lu-gallery-main" id="lu-gallery-main">
    {_TOOLS}
    <div class="lu-gallery-scroll lu-scroll" id="lu-gallery-scroll" tabindex="-1">
      <div class="lu-gallery-grid" id="lu-gallery-grid" role="list"
        data-text-aria-label="gallery.outputs"></div>
      <div class="lu-gallery-empty" id="lu-gallery-empty" hidden></div>
    </div>
    <div class="lu-chosen" id="lu-chosen" role="toolbar" data-text-aria-label="gallery.selected" hidden></div>
  </div>
  {_DETAIL}
  {_COMPARE}
</section>
{_TAGS}
"""
