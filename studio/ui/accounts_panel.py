"""Accounts: the dialog with one's own password and tokens, and the parts of the System view for managing users.

static/js/system/account.js fills the dialog, users.js the rest. Only a studio with passwords shows any of it.
"""

from studio.access.passwords import MAX_CHARS
from studio.access.users import MAX_NAME_CHARS, MAX_TOKEN_NAME_CHARS
from studio.ui.icons import icon


def _password(element_id: str, label: str, *, is_new: bool) -> str:
    kind = "new-password" if is_new else "current-password"
    return (
        f'<div class="lu-field"><label class="lu-label" for="{element_id}" data-text="{label}"></label>'
        f'<input class="lu-input" id="{element_id}" type="password" maxlength="{MAX_CHARS}" autocomplete="{kind}" '
        "required></div>"
    )


def _suggested(element_id: str, label: str) -> str:
    """A password for somebody else, which the page can make up: it is seen until it is stored."""
    return f"""
<div class="lu-field"><label class="lu-label" for="{element_id}" data-text="{label}"></label>
  <div class="lu-share-row"><input class="lu-input" id="{element_id}" type="password" maxlength="{MAX_CHARS}"
    autocomplete="new-password"><button type="button" class="lu-button" data-suggest="{element_id}"
    data-text="users.suggest"></button></div></div>"""


NEW_USER = f"""
<form class="lu-words" id="lu-user-form" novalidate>
  <div class="lu-field"><label class="lu-label" for="lu-user-name" data-text="login.name"></label>
    <input class="lu-input" id="lu-user-name" maxlength="{MAX_NAME_CHARS}" autocomplete="off" autocapitalize="none"
      spellcheck="false"></div>
  {_suggested("lu-user-password", "login.password")}
  <p class="lu-model-note" data-text="users.passwordNote"></p>
  <label class="lu-check"><input type="checkbox" id="lu-user-admin"><span data-text="users.isAdmin"></span></label>
  <p class="lu-model-note" id="lu-user-note" role="status"></p>
  <p class="lu-message" id="lu-user-message" role="alert"></p>
  <div class="lu-words-acts"><button type="submit" class="lu-button lu-accent" data-text="users.add"></button></div>
</form>
"""

USERS = """
<ul class="lu-users" id="lu-users" role="list"></ul>
<p class="lu-message" id="lu-users-message" role="alert"></p>
<p class="lu-model-note" data-text="users.removedNote"></p>
"""


def _dialog(name: str, title: str, body: str) -> str:
    return f"""
<dialog class="lu-dialog" id="lu-{name}" aria-labelledby="lu-{name}-title">
  <div class="lu-dialog-head"><h2 id="lu-{name}-title"{title}></h2>
    <button type="button" class="lu-icon-button" data-close
      data-text-aria-label="common.close">{icon("close")}</button></div>
  {body}
</dialog>"""


_RESET = f"""
<form id="lu-reset-form" novalidate>
  <div class="lu-dialog-body">
    {_suggested("lu-reset-password", "account.new")}
    <p class="lu-model-note" data-text="users.resetNote"></p>
    <p class="lu-message" id="lu-reset-message" role="alert"></p>
  </div>
  <div class="lu-dialog-foot">
    <button type="submit" class="lu-button lu-accent" data-text="users.setPassword"></button></div>
</form>
"""

_ACCOUNT = f"""
<div class="lu-dialog-body">
  <form class="lu-account-part" id="lu-account-form" aria-labelledby="lu-account-change" novalidate>
    <h3 id="lu-account-change" data-text="account.change"></h3>
    <input type="hidden" id="lu-account-name" autocomplete="username">
    {_password("lu-account-current", "account.current", is_new=False)}
    {_password("lu-account-new", "account.new", is_new=True)}
    {_password("lu-account-again", "account.again", is_new=True)}
    <p class="lu-model-note" data-text="account.changeNote"></p>
    <p class="lu-message" id="lu-account-message" role="alert"></p>
    <button type="submit" class="lu-button" data-text="account.change"></button>
  </form>
  <section class="lu-account-part" aria-labelledby="lu-account-tokens">
    <h3 id="lu-account-tokens" data-text="account.tokens"></h3>
    <p class="lu-model-note" data-text="account.tokensNote"></p>
    <ul class="lu-users" id="lu-tokens" role="list"></ul>
    <div class="lu-field" id="lu-token-box" hidden>
      <label class="lu-label" for="lu-token" data-text="account.token"></label>
      <div class="lu-share-row"><input class="lu-input" id="lu-token" readonly>
        <button type="button" class="lu-button" id="lu-token-copy"
          data-text-aria-label="account.copy">{icon("copy")}<span data-text="common.copy"></span></button></div></div>
    <form class="lu-words" id="lu-token-form" aria-labelledby="lu-account-tokens" novalidate>
      <div class="lu-field"><label class="lu-label" for="lu-token-name" data-text="account.tokenName"></label>
        <input class="lu-input" id="lu-token-name" maxlength="{MAX_TOKEN_NAME_CHARS}" autocomplete="off"
          data-text-placeholder="account.tokenHint"></div>
      {_password("lu-token-password", "account.current", is_new=False)}
      <p class="lu-message" id="lu-token-message" role="alert"></p>
      <div class="lu-words-acts"><button type="submit" class="lu-button" data-text="account.make"></button></div>
    </form>
  </section>
</div>
"""

HTML = _dialog("account", ' data-text="account.title"', _ACCOUNT) + _dialog("reset", "", _RESET)
