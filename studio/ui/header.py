"""The header: wordmark, the five views, the machine and its activity, help, language, theme, and who is logged in.

static/js/system/header.js, me.js and more.js fill it; core/views.js switches the views.
"""

from studio.ui.icons import MARK, SPRITE, icon
from studio.ui.languages import PICKER

HTML = f"""
{SPRITE}
<header class="lu-header" aria-label="Lumesh">
  <button type="button" class="lu-skip" id="lu-skip" data-text="view.skip"></button>
  <h1 class="lu-brand" style="margin:0">{MARK}<span>Lumesh</span></h1>
  <nav class="lu-views" data-text-aria-label="view.views">
    <a href="#create" data-view="create" data-text="view.create" aria-current="page"></a>
    <a href="#train" id="lu-nav-train" data-view="train" data-text="view.train"></a>
    <a href="#gallery" data-view="gallery" data-text="view.gallery"></a>
    <a href="#presets" data-view="presets" data-text="view.presets"></a>
    <a href="#system" id="lu-nav-system" data-view="system" data-text="view.system"></a>
  </nav>
  <div class="lu-engine" data-state="unknown" data-text-aria-label="engine.engine">
    <span class="lu-engine-text" id="lu-device"></span>
    <span class="lu-engine-state" id="lu-engine-state" role="status" data-text="engine.connecting"></span>
  </div>
  <div class="lu-header-actions">
    <button type="button" class="lu-icon-button lu-queue-toggle" id="lu-queue-toggle"
      aria-expanded="false" aria-controls="lu-queue" data-text-aria-label="queue.title"
      data-text-title="queue.title">{icon("queue")}
      <span class="lu-badge" id="lu-queue-badge" hidden></span></button>
    <button type="button" class="lu-icon-button" id="lu-keys-button" data-text-aria-label="help.open"
      data-text-title="help.open" data-key="?">{icon("help")}</button>
    {PICKER}
    <button type="button" class="lu-icon-button" id="lu-theme" data-text-aria-label="theme.dark"
      data-text-title="theme.title">{icon("moon")}</button>
    <button type="button" class="lu-icon-button" id="lu-more" data-text-aria-label="view.more"
      data-text-title="view.more" aria-haspopup="menu">{icon("more")}</button>
    <details class="lu-me" id="lu-me" hidden>
      <summary class="lu-icon-button" id="lu-me-button"><span id="lu-me-initial" aria-hidden="true"></span></summary>
      <div class="lu-me-card">
        <p><span data-text="me.loggedIn"></span> <strong id="lu-me-name"></strong></p>
        <button type="button" class="lu-button" id="lu-me-account" data-text="account.open" hidden></button>
        <form method="post" id="lu-me-leave" hidden>
          <button class="lu-button" data-text="me.logOut"></button></form></div>
    </details>
  </div>
</header>
"""
