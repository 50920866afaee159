"""The page's words: one catalogue a language (text/*.json), for panels and login page here, for the scripts in text.js.

Panels name their words: `<h2 data-text="queue.title"></h2>`, and likewise `data-text-title`, `data-text-aria-label`,
`data-text-placeholder` and `data-text-alt`; `data-key` is the key that a title tells of. They are built once for all
visitors, in English; static/js/core/translate.js puts another language in before anything shows. What a language lacks
is said in English. A message is a text with `{names}`, or one text for each of its plural forms (as Intl.PluralRules
names them, by `{count}`). Two parts are named by the English itself: "server" holds what REST says, as
static/js/core/translate_server.js finds it there, and "shipped" the titles, texts and tags of the presets, models and
styles that come with Lumesh.
"""

import html
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import Response

FOLDER = Path(__file__).parent / "text"
ENGLISH = "en"
COOKIE = "lumesh-language"  # as static/js/core/language.js sets it: the login page has no other way to know
SERVER = "server"
SHIPPED = "shipped"
ATTRIBUTES = ("title", "aria-label", "placeholder", "alt")
Message = str | dict[str, str]

_TEXT = re.compile(r'data-text="([\w.]+)"[^>]*>')
_ATTRIBUTE = re.compile(rf'data-text-({"|".join(ATTRIBUTES)})="([\w.]+)"(?:\s+data-key="([^"]+)")?')
_NAME = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, kw_only=True)
class Language:
    """`tag` is for browsers (zh-CN), `name` is the language's own; `messages` by id ("queue.title").

    `server` and `shipped` by what is said in English; English has neither.
    """

    tag: str
    name: str
    messages: dict[str, Message]
    server: dict[str, Message] = field(default_factory=dict[str, Message])
    shipped: dict[str, str] = field(default_factory=dict[str, str])


def read_catalogue(file: Path) -> Language:
    """A catalogue as it is written, with an id's part in front of its name."""
    parts = json.loads(file.read_text("utf-8"))
    about, server, shipped = parts.pop("language"), parts.pop(SERVER, {}), parts.pop(SHIPPED, {})
    messages = {f"{part}.{name}": message for part, named in parts.items() for name, message in named.items()}
    return Language(tag=about["tag"], name=about["name"], messages=messages, server=server, shipped=shipped)


LANGUAGES = {file.stem: read_catalogue(file) for file in sorted(FOLDER.glob("*.json"))}


def say(message_id: str, language: str = ENGLISH, **values: str) -> str:
    """A message without plural forms."""
    message = _with_english(LANGUAGES[language])[message_id]
    assert isinstance(message, str), message_id
    return _NAME.sub(lambda found: values[found[1]], message)


def fill(markup: str) -> str:
    """The panel in English."""
    filled = _TEXT.sub(lambda found: found[0] + html.escape(say(found[1]), quote=False), markup)
    return _ATTRIBUTE.sub(_fill_attribute, filled)


def _fill_attribute(found: re.Match[str]) -> str:
    attribute, message_id, key = found.groups()
    text = say(message_id) + (f"  {key}" if key else "")
    return f'{found[0]} {attribute}="{html.escape(text)}"'


def choose(accepted: str, chosen: str = "") -> str:
    """The language of a visitor who chose one, or else the first of an Accept-Language header that is here."""
    parts = sorted(accepted.split(","), key=_quality, reverse=True)
    wished = [chosen, *(part.split(";")[0].split("-")[0].strip().lower() for part in parts)]
    return next((name for name in wished if name in LANGUAGES), ENGLISH)


def _quality(part: str) -> float:
    found = re.search(r";\s*q=([\d.]{1,5})\s*$", part)
    try:
        return float(found[1]) if found else 1.0
    except ValueError:
        return 0.0


def pack(name: str, language: Language) -> bytes:
    """A language as text.js reads it: every message, and what of the server's is said otherwise in it."""
    content = {
        "name": name,
        "tag": language.tag,
        "messages": _with_english(language),
        SERVER: sorted(language.server.items(), key=lambda pair: _count_own_signs(pair[0]), reverse=True),
        SHIPPED: language.shipped,
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _count_own_signs(english: str) -> int:
    """Of several messages that fit a text, the one that says more of it itself is meant: it is tried first."""
    return len(_NAME.sub("", english))


def _with_english(language: Language) -> dict[str, Message]:
    return {**LANGUAGES[ENGLISH].messages, **language.messages}


def make_router(prefix: str) -> APIRouter:
    """`prefix` is named by content (page.py), so browsers keep what they were given."""
    router = APIRouter(include_in_schema=False)
    packed = {name: pack(name, language) for name, language in LANGUAGES.items()}

    @router.get(f"{prefix}/text/{{name}}.json")
    def read(name: str) -> Response:
        if name not in packed:
            return Response(status_code=404)
        headers = {"Cache-Control": "private, max-age=31536000, immutable"}
        return Response(packed[name], media_type="application/json", headers=headers)

    return router


def make_script(prefix: str) -> str:
    """For the page's head: the visitor's language, and its catalogue on the way before any script asks for it.

    Another language than English keeps the panels unseen until they are in it.
    """
    tags = json.dumps({name: language.tag for name, language in LANGUAGES.items()})
    return f"""
(() => {{
  const tags = {tags};
  const wished = [...navigator.languages];
  try {{ wished.unshift(localStorage.getItem("lumesh.language") ?? ""); }} catch {{ /* private mode: the browser's */ }}
  const name = wished.map((tag) => tag.split("-")[0].toLowerCase()).find((one) => one in tags) ?? "{ENGLISH}";
  document.documentElement.lang = tags[name];
  if (name !== "{ENGLISH}") document.documentElement.dataset.text = "pending";
  window.lumeshText = fetch("{prefix}/text/" + name + ".json").then((answer) => answer.json());
}})();
"""
