"""Message catalogues, one per language (text/*.json), for panels and the login page here and for scripts in text.js.

Panels refer to messages by id: `<h2 data-text="queue.title"></h2>`, and likewise `data-text-title`,
`data-text-aria-label`, `data-text-placeholder` and `data-text-alt`; `data-key` is the keyboard shortcut that a title
mentions. Panels are built once for all visitors, in English; static/js/core/translate.js inserts another language
before anything shows. Missing messages fall back to English. A message is a text with `{names}`, or one text for each
plural form (named as by Intl.PluralRules, chosen by `{count}`). Two parts use the English text as the id: "server" has
REST's messages, which static/js/core/translate_server.js looks up, and "shipped" the titles, texts and tags of the
presets, models and styles that come with Lumesh.
"""

import html
import json
import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import Response

from studio.ui import bundle

FOLDER = Path(__file__).parent / "text"
ENGLISH = "en"
COOKIE = "lumesh-language"  # set by static/js/core/language.js; the login page learns the language only from it
SERVER = "server"
SHIPPED = "shipped"
ATTRIBUTES = ("title", "aria-label", "placeholder", "alt")
Message = str | dict[str, str]

_TEXT = re.compile(r'data-text="([\w.]+)"[^>]*>')
_ATTRIBUTE = re.compile(rf'data-text-({"|".join(ATTRIBUTES)})="([\w.]+)"(?:\s+data-key="([^"]+)")?')
_NAME = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, kw_only=True)
class Language:
    """A language: `tag` is for browsers (zh-CN), `name` is its own name; `messages` are by id ("queue.title").

    `server` and `shipped` are by the English text; English has neither.
    """

    tag: str
    name: str
    messages: dict[str, Message]
    server: dict[str, Message] = field(default_factory=dict[str, Message])
    shipped: dict[str, str] = field(default_factory=dict[str, str])


def read_catalogue(file: Path) -> Language:
    """Reads a catalogue file and flattens its sections into ids such as "queue.title"."""
    parts = json.loads(file.read_text("utf-8"))
    about, server, shipped = parts.pop("language"), parts.pop(SERVER, {}), parts.pop(SHIPPED, {})
    messages = {f"{part}.{name}": message for part, named in parts.items() for name, message in named.items()}
    return Language(tag=about["tag"], name=about["name"], messages=messages, server=server, shipped=shipped)


LANGUAGES = {file.stem: read_catalogue(file) for file in sorted(FOLDER.glob("*.json"))}


def say(message_id: str, language: str = ENGLISH, **values: str) -> str:
    """Returns a message without plural forms."""
    message = _with_english(LANGUAGES[language])[message_id]
    assert isinstance(message, str), message_id
    return _NAME.sub(lambda found: values[found[1]], message)


def fill(markup: str) -> str:
    """Fills a panel's markup with English messages."""
    filled = _TEXT.sub(lambda found: found[0] + html.escape(say(found[1]), quote=False), markup)
    return _ATTRIBUTE.sub(_fill_attribute, filled)


def _fill_attribute(found: re.Match[str]) -> str:
    attribute, message_id, key = found.groups()
    text = say(message_id) + (f"  {key}" if key else "")
    return f'{found[0]} {attribute}="{html.escape(text)}"'


def choose(accepted: str, chosen: str = "") -> str:
    """Returns the visitor's chosen language, or else the first available one of the Accept-Language header."""
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
    """Returns a language as JSON for text.js: every message, and the translations of the server's messages."""
    content = {
        "name": name,
        "tag": language.tag,
        "messages": _with_english(language),
        SERVER: language.server,
        SHIPPED: language.shipped,
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _with_english(language: Language) -> dict[str, Message]:
    return {**LANGUAGES[ENGLISH].messages, **language.messages}


def make_router(prefix: str) -> APIRouter:
    """Serves the catalogues below `prefix`, which has a content hash (page.py), so browsers cache them for ever."""
    router = APIRouter(include_in_schema=False)
    senders = {
        name: bundle.make_sender(partial(pack, name, language), "application/json")
        for name, language in LANGUAGES.items()
    }

    @router.get(f"{prefix}/text/{{name}}.json")
    def read(name: str, request: Request) -> Response:
        return senders[name](request) if name in senders else Response(status_code=404)

    return router


def make_script(prefix: str) -> str:
    """Returns the script for the page's head that sets the visitor's language and preloads its catalogue.

    With another language than English, the panels stay hidden until they are translated.
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
