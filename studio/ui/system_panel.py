"""The System view, in tabs: devices, models, storage, LoRAs and wildcards, plans for other chips, the log, users.

static/js/system/tabs.js shows one of them, and system.js fills it while it is shown; systemplan.js has the plan,
modelfiles.js the models' files, lorafiles.js the LoRAs, wildcards.js the wildcards, users.js the users.
"""

from studio.ui import accounts_panel
from studio.ui.icons import icon


def _card(name: str, title: str, body: str, *, tools: str = "", style: str = "") -> str:
    return f"""
<section class="lu-sys-card {style}" aria-labelledby="lu-sys-{name}-title">
  <div class="lu-sys-head"><h3 id="lu-sys-{name}-title" data-text="{title}"></h3>{tools}</div>
  {body}
</section>"""


def _table(name: str, *columns: str) -> str:
    heads = "".join(f'<th scope="col" data-text="{column}"></th>' for column in columns)
    return (
        f'<table class="lu-sys-table" aria-labelledby="lu-sys-{name}-title"><thead><tr>{heads}</tr></thead>'
        f'<tbody id="lu-sys-{name}"></tbody></table>'
    )


def _select(name: str, label: str) -> str:
    return f"""
<div class="lu-field"><label class="lu-label" for="lu-plan-{name}" data-text="{label}"></label>
  <select class="lu-input" id="lu-plan-{name}"></select></div>"""


def _cache(what: str, title: str, clear: str) -> str:
    return f"""
<div><dt data-text="{title}"></dt><dd><span class="lu-num" id="lu-sys-{what}"></span>
  <button type="button" class="lu-button" data-clear="{what}"
    data-text-aria-label="{clear}">{icon("trash")}<span data-text="system.clear"></span></button>
</dd></div>"""


_MACHINE = """
<p class="lu-sys-lead" id="lu-sys-device"></p>
<div class="lu-sys-meters" id="lu-sys-devices"></div>
<dl class="lu-sys-facts" id="lu-sys-machine"></dl>
"""

_WORKERS = """
<ul class="lu-sys-workers" id="lu-sys-workers"></ul>
<p class="lu-model-note" id="lu-sys-join" hidden><span data-text="workers.join"></span> <code></code></p>
"""

_CHOICE = """
<select class="lu-input lu-sys-choice" id="lu-sys-choice" data-text-aria-label="workers.shown" hidden></select>
"""

_CACHE = f"""
<dl class="lu-sys-rows">
  {_cache("programs", "system.programs", "system.clearPrograms")}
  {_cache("plans", "system.plans", "system.clearPlans")}
  {_cache("layouts", "system.layouts", "system.clearLayouts")}
  {_cache("trainings", "system.trainings", "system.clearTrainings")}
</dl>
<p class="lu-model-note" data-text="system.cacheNote"></p>
"""

_PLAN = f"""
<form class="lu-plan-form" id="lu-plan-form">
  {_select("model", "setting.model")}
  {_select("shape", "setting.shape")}
  {_select("topology", "plan.chips")}
  {_select("mode", "plan.mode")}
  <button type="submit" class="lu-button lu-accent" id="lu-plan-start" data-text="plan.start"></button>
</form>
<p class="lu-message" id="lu-plan-message" role="alert"></p>
<div class="lu-plan-run" id="lu-plan-run" hidden>
  <div class="lu-progress" id="lu-plan-progress" role="progressbar" data-text-aria-label="plan.progress"
    aria-valuemin="0" aria-valuemax="100"><i></i></div>
  <p class="lu-num" id="lu-plan-phase"></p>
  <button type="button" class="lu-button" id="lu-plan-cancel">{icon("stop")}<span
    data-text="common.cancel"></span></button>
</div>
<div id="lu-plan-result" role="region" data-text-aria-label="plan.plan" tabindex="-1"></div>
<p class="lu-model-note" data-text="plan.note"></p>
"""

_USAGE = f"""
{_table("usage", "system.owner", "system.jobs", "system.chipSeconds", "system.money")}
<p class="lu-model-note" id="lu-sys-price"></p>
"""

_DISK = f"""
{_table("disk", "system.what", "system.files", "system.size")}
<p class="lu-model-note" id="lu-sys-free"></p>
"""

_WORDS_NAME = r"[A-Za-z0-9][\w\-]*(\/[A-Za-z0-9][\w\-]*)*"  # the same pattern as in library/wildcards.py

_WORDS = f"""
<form class="lu-words" id="lu-words-form">
  <div class="lu-field"><label class="lu-label" for="lu-words-list" data-text="words.list"></label>
    <select class="lu-input" id="lu-words-list"></select></div>
  <div class="lu-field"><label class="lu-label" for="lu-words-name" data-text="words.name"></label>
    <input class="lu-input" id="lu-words-name" maxlength="80" required pattern="{_WORDS_NAME}"
      data-text-title="words.nameRule" autocomplete="off" spellcheck="false"></div>
  <div class="lu-field"><label class="lu-label" for="lu-words-lines" data-text="words.lines"></label>
    <textarea class="lu-input lu-scroll" id="lu-words-lines" rows="8" required></textarea></div>
  <p class="lu-model-note" id="lu-words-note" role="status"></p>
  <p class="lu-message" id="lu-words-message" role="alert"></p>
  <div class="lu-words-acts">
    <button type="submit" class="lu-button lu-accent" data-text="words.save"></button>
    <button type="button" class="lu-button" id="lu-words-delete" hidden>{icon("trash")}<span
      data-text="words.delete"></span></button>
  </div>
</form>
"""

_LORAS = f"""
<table class="lu-sys-table lu-lora-files" aria-labelledby="lu-sys-loras-title" hidden>
  <thead><tr><th scope="col" data-text="loras.file"></th><th scope="col" data-text="loras.family"></th>
    <th scope="col" data-text="system.size"></th><th></th></tr></thead>
  <tbody id="lu-lora-files"></tbody></table>
<p class="lu-model-note" id="lu-lora-note"></p>
<div class="lu-lora-tools">
  <button type="button" class="lu-button" id="lu-lora-add">{icon("upload")}<span
    data-text="loras.addFile"></span></button>
  <input type="file" id="lu-lora-file" accept=".safetensors" hidden>
  <span class="lu-model-note lu-num" id="lu-lora-state" role="status"></span></div>
<p class="lu-message" id="lu-lora-message" role="alert"></p>
"""

_MODELS = """
<p class="lu-message" id="lu-model-message" role="alert"></p>
<div class="lu-sys-models" id="lu-sys-models"></div>
<p class="lu-model-note" id="lu-models-free"></p>
<div class="lu-sys-unusable" id="lu-sys-unusable" hidden>
  <h4 data-text="system.unusable"></h4>
  <ul id="lu-sys-unusable-list"></ul>
</div>
"""

_ADD = f"""
<form class="lu-hub-token" id="lu-model-add-form">
  <div class="lu-field"><label class="lu-label" for="lu-model-repo" data-text="models.repo"></label>
    <input class="lu-input" id="lu-model-repo" maxlength="2000" required
      data-text-placeholder="models.repoHint" autocomplete="off" autocapitalize="off" spellcheck="false"></div>
  <button type="submit" class="lu-button" id="lu-model-add" data-text="models.addRepo"></button>
  <button type="button" class="lu-button" id="lu-model-add-file">{icon("upload")}<span
    data-text="models.addFile"></span></button>
  <input type="file" id="lu-model-file" accept=".safetensors,.gguf" hidden>
</form>
<p class="lu-model-note lu-num" id="lu-model-state" role="status"></p>
<p class="lu-message" id="lu-model-add-message" role="alert"></p>
<ul class="lu-arrivals" id="lu-arrivals"></ul>
<p class="lu-model-note" data-text="models.addNote"></p>
"""

_HUB = """
<p class="lu-model-note" id="lu-hub-token-state" role="status"></p>
<form class="lu-hub-token" id="lu-hub-token-form">
  <div class="lu-field"><label class="lu-label" for="lu-hub-token-field" data-text="models.tokenField"></label>
    <input class="lu-input" id="lu-hub-token-field" type="password" maxlength="200" required autocomplete="off"
      spellcheck="false"></div>
  <button type="submit" class="lu-button" data-text="models.tokenKeep"></button>
  <button type="button" class="lu-button" id="lu-hub-token-forget" data-text="models.tokenForget" hidden></button>
</form>
<p class="lu-model-note" data-text="models.tokenNote"></p>
"""

_LOG_TOOLS = f"""
<button type="button" class="lu-icon-button" id="lu-sys-log-read" data-text-aria-label="system.readLog"
  data-text-title="system.readLog">{icon("retry")}</button>
"""

_LOG = """
<pre class="lu-sys-log lu-scroll" id="lu-sys-log" tabindex="0" role="region"
  data-text-aria-label="system.logEnd"></pre>
<p class="lu-model-note"><span data-text="system.logNote"></span> <code id="lu-sys-log-file"></code></p>
"""


def _stack(*cards: str) -> str:
    return f'<div class="lu-sys-stack">{"".join(cards)}</div>'


_VERSIONS = _card("versions", "system.versions", '<dl class="lu-sys-facts" id="lu-sys-versions"></dl>')

_TABS = {
    "devices": _card("workers", "workers.title", _WORKERS, style="lu-sys-wide")
    + _card("machine", "system.machine", _MACHINE, tools=_CHOICE)
    + _stack(_card("usage", "system.usage", _USAGE), _VERSIONS),
    "models": _card("add", "models.add", _ADD, style="lu-sys-wide")
    + _card("models", "system.models", _MODELS, style="lu-sys-wide")
    + _card("hub", "models.hub", _HUB, style="lu-sys-wide"),
    "storage": _card("disk", "system.disk", _DISK) + _card("cache", "system.cache", _CACHE),
    "loras": _card("loras", "setting.loras", _LORAS) + _card("words", "words.title", _WORDS),
    "plan": _card("plan", "system.plan", _PLAN, style="lu-sys-wide"),
    "log": _card("log", "system.log", _LOG, tools=_LOG_TOOLS, style="lu-sys-wide"),
    "users": _card("users", "tab.users", accounts_panel.USERS)
    + _card("user", "users.addTitle", accounts_panel.NEW_USER),
}


def _list_tabs() -> str:
    """Lists the tabs; static/js/system/tabs.js marks the chosen one, and shows Users where there are any."""
    return "".join(
        f'<button type="button" role="tab" id="lu-sys-tab-{name}" data-tab="{name}" '
        f'aria-controls="lu-sys-panel-{name}" aria-selected="false" tabindex="-1" data-text="tab.{name}"'
        f"{' hidden' if name == 'users' else ''}></button>"
        for name in _TABS
    )


def _list_panels() -> str:
    return "".join(
        f'<div class="lu-sys-grid" role="tabpanel" id="lu-sys-panel-{name}" data-panel="{name}" '
        f'aria-labelledby="lu-sys-tab-{name}" tabindex="0" hidden>'
        f'<p class="lu-sys-about" data-text="about.{name}"></p>{cards}</div>'
        for name, cards in _TABS.items()
    )


HTML = f"""
<section class="lu-system lu-scroll" id="lu-system" aria-labelledby="lu-system-title">
  <div class="lu-system-head"><h2 id="lu-system-title" tabindex="-1" data-text="view.system"></h2>
    <span class="lu-num" id="lu-system-note" role="status"></span></div>
  <p class="lu-refused" id="lu-system-refused" data-text="system.refused" hidden></p>
  <div id="lu-system-parts">
  <div class="lu-tabs" id="lu-sys-tabs" role="tablist" data-text-aria-label="view.system">{_list_tabs()}</div>
  <p class="lu-message" id="lu-system-message" role="alert"></p>
  {_list_panels()}
  </div>
</section>
"""
