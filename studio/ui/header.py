"""The header: wordmark, the four views, the machine and its activity, language, theme and keys.

static/js/system/header.js and me.js fill it; core/views.js switches the views.
"""

from studio.ui.icons import MARK, SPRITE, icon
from studio.ui.languages import make_picker

HTML = f"""
{SPRITE}
<header class="lu-header" aria-label="Lumesh">
  <h1 class="lu-brand" style="margin:0">{MARK}<span>Lumesh</span></h1>
  <nav class="lu-views" data-text-aria-label="view.views">
    <a href="#create" data-view="create" data-text="view.create" aria-current="page"></a>
    <a href="#gallery" data-view="gallery" data-text="view.gallery"></a>
    <a href="#presets" data-view="presets" data-text="view.presets"></a>
    <a href="#system" id="lu-nav-system" data-view="system" data-text="view.system"></a>
  </nav>
  <div class="lu-engine" data-state="unknown" data-text-aria-label="engine.engine">
    <span class="lu-engine-text" id="lu-device"></span>
    <span class="lu-engine-state" id="lu-engine-state" role="status" data-text="engine.connecting"></span>
  </div>
  <div class="lu-header-actions">
    <button type="button" class="lu-icon-button lu-only-narrow lu-queue-toggle" id="lu-queue-toggle"
      aria-expanded="false" aria-controls="lu-queue" data-text-aria-label="queue.title"
      data-text-title="queue.title">{icon("queue")}
      <span class="lu-badge" id="lu-queue-badge" hidden></span></button>
    <button type="button" class="lu-icon-button" id="lu-keys-button" data-text-aria-label="help.open"
      data-text-title="help.open" data-key="?">{icon("help")}</button>
    {make_picker("lu-language")}
    <button type="button" class="lu-icon-button" id="lu-theme" data-text-aria-label="theme.dark"
      data-text-title="theme.title">{icon("moon")}</button>
    <details class="lu-me" id="lu-me" hidden>
      <summary class="lu-icon-button" id="lu-me-button"><span id="lu-me-initial" aria-hidden="true"></span></summary>
      <div class="lu-me-card">
        <p><span data-text="me.loggedIn"></span> <strong id="lu-me-name"></strong></p>
        {make_picker("lu-me-language", is_worded=True)}
        <form method="post" id="lu-me-leave" hidden>
          <button class="lu-button" data-text="me.logOut"></button></form></div>
    </details>
  </div>
</header>
"""
