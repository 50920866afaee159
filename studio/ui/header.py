"""The header: wordmark, what the machine is and does, theme and keys.

Filled by static/js/header.js.
"""

from studio.ui.icons import MARK, SPRITE, icon

HTML = f"""
{SPRITE}
<header class="lu-header" aria-label="Lumesh">
  <h1 class="lu-brand" style="margin:0">{MARK}<span>Lumesh</span></h1>
  <div class="lu-engine" data-state="unknown" aria-label="Engine">
    <span class="lu-engine-text" id="lu-device"></span>
    <span class="lu-engine-state" id="lu-engine-state" role="status">Connecting…</span>
  </div>
  <div class="lu-header-actions">
    <button type="button" class="lu-icon-button lu-only-narrow lu-queue-toggle" id="lu-queue-toggle"
      aria-expanded="false" aria-controls="lu-queue" aria-label="Queue" title="Queue">{icon("queue")}
      <span class="lu-badge" id="lu-queue-badge" hidden></span></button>
    <button type="button" class="lu-icon-button" id="lu-keys-button" aria-label="Keyboard shortcuts"
      title="Keyboard shortcuts  ?">{icon("keyboard")}</button>
    <button type="button" class="lu-icon-button" id="lu-theme" aria-label="Switch to the dark theme"
      title="Theme  T">{icon("moon")}</button>
  </div>
</header>
"""
