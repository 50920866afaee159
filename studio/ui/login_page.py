"""The login page, in one answer with its font: its visitors may not load any other of the studio's files yet.

Its one script only sets the theme and keeps the URL's fragment (a shared recipe) until after the login.
Not here: the routes (login.py).
"""

import html
import re
import secrets
from dataclasses import dataclass
from urllib.parse import urlencode

from fastapi.responses import HTMLResponse

from studio.access_settings import Mode
from studio.ui.catalogues import LANGUAGES, say
from studio.ui.first_script import THEME_SCRIPT
from studio.ui.icons import MARK
from studio.ui.page import STATIC_DIR

FONT_PATH = "login/inter.woff2"
FONT = STATIC_DIR / "fonts" / "inter-latin.woff2"
_TOKENS = re.sub(r"@font-face \{.*?\n\}", "", (STATIC_DIR / "css" / "tokens.css").read_text("utf-8"), flags=re.DOTALL)
_STYLE = _TOKENS + (STATIC_DIR / "css" / "login.css").read_text("utf-8")

_SCRIPT = """
for (const form of document.forms)
  form.addEventListener("submit", () => { form.action = new URL("login", location.href).pathname + location.hash; });
if (window.top === window) for (const link of document.querySelectorAll("a[target]")) link.removeAttribute("target");
"""


@dataclass(frozen=True, kw_only=True)
class LoginForm:
    """The page's content: `onward` is the relative URL to go to afterwards; `name` was typed before.

    `root` leads from the page's own address to the studio's.
    """

    language: str
    onward: str = ""
    problem: str = ""
    name: str = ""
    root: str = ""


def show_login(mode: Mode, visit: LoginForm, *, status: int = 200) -> HTMLResponse:
    """Renders the login page for this mode."""
    nonce = secrets.token_urlsafe(16)
    language, problem = visit.language, visit.problem
    body = {Mode.PASSWORD: _make_form, Mode.HUGGINGFACE: _make_link}.get(mode, _make_notice)
    alert = f'<p role="alert" id="problem">{html.escape(problem)}</p>' if problem else ""
    content = f"""<!doctype html>
<html lang="{LANGUAGES[language].tag}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{say("login.title", language)} · Lumesh</title>
<link rel="icon" href="data:,">
<style nonce="{nonce}">{_make_font(visit.root)}{_STYLE}</style>
<script nonce="{nonce}">{THEME_SCRIPT}</script>
</head>
<body>
<main>
<h1>{MARK}<span>Lumesh</span></h1>
{alert}{body(visit)}
</main>
<script nonce="{nonce}">{_SCRIPT}</script>
</body>
</html>
"""
    policy = (
        f"default-src 'none'; style-src 'nonce-{nonce}'; font-src 'self'; script-src 'nonce-{nonce}'; img-src data:; "
        "form-action 'self'; base-uri 'none'"
    )
    headers = {"Content-Security-Policy": policy, "Cache-Control": "no-store", "Vary": "Accept-Language, Cookie"}
    return HTMLResponse(content, status_code=status, headers=headers)


def _make_font(root: str) -> str:
    return (
        f'@font-face {{ font-family: "Inter"; src: url("{root}{FONT_PATH}") format("woff2"); '
        "font-weight: 100 900; font-display: swap; }"
    )


def _make_form(visit: LoginForm) -> str:
    described = ' aria-describedby="problem" aria-invalid="true"' if visit.problem else ""
    focus = ("", " autofocus") if visit.name else (" autofocus", "")
    return f"""<form method="post" action="login">
<input type="hidden" name="next" value="{html.escape(visit.onward)}">
<label for="name">{say("login.name", visit.language)}</label>
<input id="name" name="name" value="{html.escape(visit.name)}" autocomplete="username" autocapitalize="none"
  spellcheck="false" maxlength="100" required{focus[0]}{described}>
<label for="password">{say("login.password", visit.language)}</label>
<input id="password" name="password" type="password" autocomplete="current-password" maxlength="200"
  required{focus[1]}{described}>
<button>{say("login.logIn", visit.language)}</button>
</form>"""


def _make_link(visit: LoginForm) -> str:
    """Makes the link to the hub's login; it opens a new tab, because the hub's page refuses to be framed."""
    query = f"?{urlencode({'next': visit.onward})}" if visit.onward else ""
    link = (
        f'<a class="button" href="{visit.root}login/huggingface{html.escape(query)}" target="_blank">'
        f"{say('login.hub', visit.language)}</a>"
    )
    return f"<p>{say('login.hubNote', visit.language)}</p>{link}"


def _make_notice(visit: LoginForm) -> str:
    return f"<p>{say('login.proxyNote', visit.language)}</p>"
