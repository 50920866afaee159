"""The manual in the page: the Markdown of studio/docs and pipelines/docs as HTML, at /help/ and /help/<page>.

The same files are read on GitHub, so their links are relative paths of the repository. Here a link to another page of
the manual leads to /help/<page>, a picture is served from /help/pictures/, and a link to any other file of the
repository becomes plain text. Pages, pictures and their names are a closed list made at the start: no path of a request
ever reaches the disk. Pages have no inline scripts or styles, so their CSP allows none. Like every route, these are
behind the login (api/middleware/auth.py). The text is English; the navigation is in the visitor's language.
Not here: the list of pages in the Help panel (help_panel.py), looks (static/css/manual.css).
"""

import html
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from markdown_it import MarkdownIt
from markdown_it.token import Token

from studio.ui import catalogues
from studio.ui.first_script import THEME_SCRIPT
from studio.ui.icons import MARK

ROOT = Path(__file__).resolve().parents[2]
# In reading order; the name of a page is that of its file.
PAGES = {
    name: f"{folder}/{name}.md"
    for folder, names in {
        "studio/docs": (
            "create",
            "training",
            "gallery",
            "presets",
            "system",
            "settings",
            "access",
            "hosting",
            "workers",
            "rest",
        ),
        "pipelines/docs": (
            "command-line",
            "models",
            "few-steps",
            "training-data",
            "demos",
            "planning",
            "slices",
            "training-plans",
            "packs",
            "doctor",
            "gpu",
            "measured",
        ),
    }.items()
    for name in names
}
PATH = "/help"
PICTURES = "pictures"
SENTENCE_CHARS = 60  # a table cell longer than this is a sentence
_THEME = "theme.js"
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; font-src 'self'; base-uri 'none'; "
    "form-action 'none'"
)
_FOREIGN = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page as HTML; `pictures` are the repository's files that it shows, by the names they are served under."""

    title: str
    body: str
    pictures: dict[str, Path] = field(default_factory=dict[str, Path])


def title_id(name: str) -> str:
    """Returns the message id of a page's title."""
    return f"manual.{name.replace('-', '_')}"


def slug(heading: str) -> str:
    """Returns the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@cache
def render(name: str) -> Page:
    """Renders the page of this name; raises KeyError when there is none."""
    file = PAGES[name]
    tokens = _PARSER.parse((ROOT / file).read_text("utf-8"))
    pictures: dict[str, Path] = {}
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type == "heading_open" and following is not None:
            token.attrSet("id", slug(_read_text(following)))
        if token.type == "inline":
            token.children = list(_adapt(token.children or [], posixpath.dirname(file), pictures))
    title = next(_read_text(tokens[at + 1]) for at, token in enumerate(tokens) if token.tag == "h1")
    return Page(title=title, body=_PARSER.renderer.render(tokens, _PARSER.options, {}), pictures=pictures)


def _make_parser() -> MarkdownIt:
    """Makes a CommonMark parser with tables and without HTML; wide blocks scroll on phones, by keyboard too."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.add_render_rule("table_open", _open_table)
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    parser.add_render_rule(
        "fence", lambda _, tokens, at, *__: f'<pre tabindex="0"><code>{html.escape(tokens[at].content)}</code></pre>\n'
    )
    return parser


def _open_table(_: object, tokens: Sequence[Token], at: int, *__: object) -> str:
    """Opens a table; on phones, a table of sentences does not scroll but stacks its cells."""
    end = next(later for later in range(at, len(tokens)) if tokens[later].type == "table_close")
    cells = [tokens[one + 1].content for one in range(at, end) if tokens[one].type == "td_open"]
    looks = "wide stacks" if max(map(len, cells), default=0) > SENTENCE_CHARS else "wide"
    return f'<div class="{looks}" tabindex="0"><table>\n'


_PARSER = _make_parser()


def _read_text(inline: Token) -> str:
    return "".join(token.content for token in inline.children or [] if token.type in ("text", "code_inline"))


def _adapt(tokens: list[Token], folder: str, pictures: dict[str, Path]) -> Iterator[Token]:
    """Yields a line's tokens with links and pictures rewritten to work from /help/<page>."""
    is_plain = False  # inside a link to a file that is no page
    for token in tokens:
        if token.type == "image":
            file = ROOT / posixpath.normpath(posixpath.join(folder, str(token.attrs["src"])))
            pictures[file.name] = file
            token.attrSet("src", f"{PICTURES}/{file.name}")
            token.attrSet("loading", "lazy")
        if token.type == "link_open":
            address = _find_address(str(token.attrs["href"]), folder)
            if is_plain := address is None:
                continue
            token.attrSet("href", address)
        if token.type == "link_close" and is_plain:
            is_plain = False
            continue
        yield token


def _find_address(link: str, folder: str) -> str | None:
    """Returns the server's URL for a link in a file of this folder; None for files that are no pages."""
    path, _, anchor = link.partition("#")
    if _FOREIGN.match(link) or not path:
        return link
    target = posixpath.normpath(posixpath.join(folder, path))
    name = next((name for name, file in PAGES.items() if file == target), None)
    return None if name is None else name + (f"#{anchor}" if anchor else "")


def make_router(prefix: str) -> APIRouter:
    """Makes the routes of the manual; `prefix` is the URL of the static files (page.py)."""
    router = APIRouter(include_in_schema=False)
    pictures = {name: file for page in PAGES for name, file in render(page).pictures.items()}

    @router.get(PATH)
    def redirect() -> Response:
        return RedirectResponse(f"{PATH.strip('/')}/", status_code=303)  # relative, for a proxy's prefix

    @router.get(f"{PATH}/{_THEME}")
    def read_theme() -> Response:
        return Response(THEME_SCRIPT, media_type="text/javascript", headers={"Cache-Control": "no-cache"})

    @router.get(f"{PATH}/{PICTURES}/{{path:path}}")
    def read_picture(path: str) -> Response:
        if path not in pictures:
            raise HTTPException(404)
        return FileResponse(pictures[path])

    @router.get(f"{PATH}/{{path:path}}")
    def read_page(path: str, request: Request) -> Response:
        accepted, chosen = request.headers.get("accept-language", ""), request.cookies.get(catalogues.COOKIE, "")
        if path and path not in PAGES:
            raise HTTPException(404)
        content = _show(path, catalogues.choose(accepted, chosen), prefix.removeprefix("/"))
        return HTMLResponse(
            content,
            headers={
                "Content-Security-Policy": _POLICY,
                "Cache-Control": "no-cache",
                "Vary": "Accept-Language, Cookie",
            },
        )

    return router


def _show(name: str, language: str, static: str) -> str:
    """Renders a page with the list of all pages, or only the list. URLs are relative, for a proxy's prefix."""
    page = render(name) if name else None
    said = {one: html.escape(catalogues.say(title_id(one), language)) for one in PAGES}
    here = {name: ' aria-current="page"'}
    links = "".join(f'<li><a href="{one}"{here.get(one, "")}>{title}</a></li>' for one, title in said.items())
    manual, back, pages = (
        html.escape(text)
        for text in (
            catalogues.say("manual.title", language),
            catalogues.say("manual.back", language),
            catalogues.say("manual.pages", language),
        )
    )
    level = "h2" if page else "h1"
    heading = page.title if page else manual
    article = f'<article lang="en">{page.body}</article>' if page else ""
    return f"""<!doctype html>
<html lang="{catalogues.LANGUAGES[language].tag}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(heading)} · Lumesh</title>
<link rel="icon" type="image/svg+xml" href="../{static}/icons/lumesh.svg">
<script src="{_THEME}"></script>
<link rel="stylesheet" href="../{static}/css/tokens.css">
<link rel="stylesheet" href="../{static}/css/manual.css">
</head>
<body>
<header>
<a class="mark" href="./">{MARK}<span>{manual}</span></a>
<a class="pages" href="#pages">{pages}</a>
<a href="../">{back}</a>
</header>
<main>
{article}
<nav id="pages" aria-labelledby="pages-title">
<{level} id="pages-title">{pages if page else manual}</{level}>
<ul>{links}</ul>
</nav>
</main>
</body>
</html>
"""
