"""The right column: the running job, waiting jobs with their reasons, and recently ended ones.

static/js/queue/queue.js fills it; everyone.js shows everybody's queue, arrange.js moves jobs, queuemenu.js has the
menus, webhook.js the webhook's dialog. The live region tells screen readers where a moved job is now.
"""

from studio.ui.icons import icon

_WEBHOOK = f"""
<dialog class="lu-dialog" id="lu-hook" aria-labelledby="lu-hook-heading">
  <form id="lu-hook-form" novalidate>
    <div class="lu-dialog-head"><h2 id="lu-hook-heading" data-text="hook.title"></h2>
      <button type="button" class="lu-icon-button" data-close
        data-text-aria-label="common.close">{icon("close")}</button></div>
    <div class="lu-dialog-body">
      <div class="lu-field">
        <label class="lu-label" for="lu-hook-url" data-text="hook.address"></label>
        <input class="lu-input" id="lu-hook-url" type="url" placeholder="https://example.com/lumesh" maxlength="2000"
          autocomplete="off" autocapitalize="off" spellcheck="false" aria-describedby="lu-hook-note">
        <p class="lu-model-note" id="lu-hook-note" data-text="hook.note"></p>
        <p class="lu-message" role="alert" id="lu-hook-message"></p>
      </div>
      <div class="lu-field" id="lu-hook-secret-box" hidden>
        <label class="lu-label" for="lu-hook-secret" data-text="hook.secret"></label>
        <div class="lu-share-row"><input class="lu-input" id="lu-hook-secret" readonly>
          <button type="button" class="lu-button" id="lu-hook-copy"
            data-text-aria-label="hook.copy">{icon("copy")}<span data-text="common.copy"></span></button></div>
        <p class="lu-model-note" data-text="hook.secretNote"></p>
      </div>
      <p class="lu-hook-told" id="lu-hook-told" role="status"></p>
    </div>
    <div class="lu-dialog-foot">
      <button type="button" class="lu-button lu-quiet" id="lu-hook-remove">{icon("trash")}<span
        data-text="hook.remove"></span></button>
      <button type="button" class="lu-button" id="lu-hook-ping" data-text="hook.ping"></button>
      <button type="submit" class="lu-button lu-accent" data-text="hook.save"></button></div>
  </form>
</dialog>
"""

HTML = f"""
<aside class="lu-queue" id="lu-queue" data-text-aria-label="queue.title">
  <div class="lu-queue-head"><h2 data-text="queue.title"></h2>
    <span class="lu-queue-total lu-num" id="lu-queue-total"></span>
    <button type="button" class="lu-icon-button" id="lu-queue-pause" data-text-aria-label="queue.pauseAll"
      data-text-title="queue.pauseHint">{icon("pause")}</button>
    <button type="button" class="lu-icon-button" id="lu-queue-more" data-text-aria-label="queue.moreOf"
      data-text-title="queue.more" aria-haspopup="menu">{icon("more")}</button></div>
  <div class="lu-queue-whose" id="lu-queue-whose" hidden>
    <button type="button" class="lu-queue-link" id="lu-queue-everyone" aria-pressed="false"
      data-text="queue.everyone" data-text-title="queue.everyoneHint"></button></div>
  <div class="lu-queue-list lu-scroll" id="lu-queue-list"></div>
  <p class="lu-queue-cost lu-num" id="lu-queue-cost" data-text-title="cost.totalHint" hidden></p>
  <p class="lu-sr" id="lu-queue-live" role="status" aria-live="polite"></p>
</aside>
{_WEBHOOK}
"""
