"""The dialog for a grid: what varies across columns, rows and tables, the number of pictures, and the cost in advance.

static/js/create/griddialog.js fills and reads it; it is opened beside the seeds, and from a finished sheet.
"""

from studio.ui.icons import icon


def _axis(name: str, title: str) -> str:
    labels = [f'aria-labelledby="lu-xyz-{name}-title lu-xyz-{what}"' for what in ("what", "values", "all")]
    return f"""
<div class="lu-field" data-field="{name}" role="group" aria-labelledby="lu-xyz-{name}-title">
  <span class="lu-label" id="lu-xyz-{name}-title" data-text="{title}"></span>
  <div class="lu-xyz-row">
    <select class="lu-input" id="lu-xyz-{name}-field" {labels[0]}></select>
    <input class="lu-input" id="lu-xyz-{name}-values" {labels[1]} maxlength="4000" autocomplete="off"
      autocapitalize="off" spellcheck="false" aria-describedby="lu-xyz-{name}-message">
    <button type="button" class="lu-button" id="lu-xyz-{name}-all" {labels[2]} data-text="grid.all" hidden></button>
  </div>
  <p class="lu-message" id="lu-xyz-{name}-message" data-message="{name}" role="alert"></p>
</div>"""


HTML = f"""
<dialog class="lu-dialog lu-xyz" id="lu-xyz" aria-labelledby="lu-xyz-heading">
  <form id="lu-xyz-form" novalidate>
    <div class="lu-dialog-head"><h2 id="lu-xyz-heading" data-text="grid.title"></h2>
      <button type="button" class="lu-icon-button" data-close
        data-text-aria-label="common.close">{icon("close")}</button></div>
    <div class="lu-dialog-body">
      <p class="lu-model-note" data-text="grid.note"></p>
      <div hidden><span id="lu-xyz-what" data-text="grid.what"></span><span id="lu-xyz-values"
        data-text="grid.values"></span><span id="lu-xyz-all" data-text="grid.allValues"></span></div>
      {_axis("x", "grid.x")}{_axis("y", "grid.y")}{_axis("z", "grid.z")}
      <p class="lu-model-note" data-text="grid.valuesNote"></p>
      <div class="lu-xyz-told" id="lu-xyz-told" role="status">
        <p class="lu-xyz-count lu-num" id="lu-xyz-count"></p>
        <ul class="lu-num" id="lu-xyz-costs"></ul></div>
      <p class="lu-message" role="alert" data-message="grid"></p>
    </div>
    <div class="lu-dialog-foot">
      <button type="button" class="lu-button" data-close data-text="common.cancel"></button>
      <button type="submit" class="lu-button lu-accent" id="lu-xyz-queue">
        {icon("grid")}<span data-text="grid.queue"></span></button></div>
  </form>
</dialog>
"""
