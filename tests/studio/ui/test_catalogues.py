"""Every word of the page stands in the catalogues, once in each language, and nothing there is left over."""

import json
import re

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from pipelines.stages import PHASES
from studio.jobs.states import JobState
from studio.jobs.workers import WorkerState
from studio.ui import catalogues, page
from studio.ui.catalogues import ENGLISH, LANGUAGES, Language, Message
from tests.places import ROOT

SCRIPTS = sorted((page.STATIC_DIR / "js").rglob("*.js"))
EVENTS = "stream.js"  # its kinds of events look like ids
OTHERS = sorted(LANGUAGES.keys() - {ENGLISH})
WHOLE = {"zh"}  # what others lack is said in English
# In any language: the name, files and addresses, keys.
NO_WORDS = re.compile(r"Lumesh|jobs\.db|worker\.log|api/docs|Ctrl|https://example\.com/lumesh|\w+/")


def list_forms(message: Message) -> list[str]:
    return [message] if isinstance(message, str) else list(message.values())


def find_placeholders(message: Message) -> set[str]:
    return {name for form in list_forms(message) for name in re.findall(r"\{(\w+)\}", form)}


def find_used() -> tuple[set[str], set[str]]:
    """Ids that code names, and the parts of which it names some at run time (`state.${job.state}`)."""
    ids, parts = set(), set()
    for script in SCRIPTS:
        text = script.read_text("utf-8")
        parts |= set(re.findall(r"`(\w+)\.\$\{", text))
        if script.name != EVENTS:
            ids |= {found for found in re.findall(r'"(\w+\.\w+)"', text) if is_part(found)}
    for panel in page.PANELS.values():
        ids |= set(re.findall(r'data-text(?:-[a-z-]+)?="([\w.]+)"', panel.HTML))
    for name in ("login.py", "login_page.py", "manual.py"):
        ids |= set(re.findall(r"""say\(["']([\w.]+)["']""", (ROOT / "studio" / "ui" / name).read_text("utf-8")))
    return ids, parts


def is_part(message_id: str) -> bool:
    return message_id.split(".")[0] in {known.split(".")[0] for known in LANGUAGES[ENGLISH].messages}


def test_what_code_names_is_there_and_what_is_there_is_named() -> None:
    ids, parts = find_used()
    known = LANGUAGES[ENGLISH].messages.keys()
    assert len(ids) > 400
    assert not ids - known
    unused = {name for name in known - ids if name.split(".")[0] not in parts}
    assert not unused


def test_what_is_named_at_run_time_is_there() -> None:
    keymap = (page.STATIC_DIR / "js" / "core" / "keymap.js").read_text("utf-8")
    wanted = {
        *(f"phase.{phase}" for phase in PHASES),
        *(f"meaning.{phase}" for phase in PHASES),
        *(f"state.{state}" for state in JobState if state not in (JobState.QUEUED, JobState.RUNNING)),
        *(f"engine.{state}" for state in WorkerState),
        *(f"key.{name}" for name in re.findall(r'{ id: "(\w+)"', keymap)),
    }
    assert not wanted - LANGUAGES[ENGLISH].messages.keys()


@pytest.mark.parametrize("name", OTHERS)
def test_another_language_says_the_same_with_the_same_values(name: str) -> None:
    english, other = LANGUAGES[ENGLISH].messages, LANGUAGES[name].messages
    assert other.keys() == english.keys() if name in WHOLE else other.keys() <= english.keys()
    for key, said in other.items():
        message = english[key]
        lost = find_placeholders(message) ^ find_placeholders(said)
        # "Imported “a picture”" is said of one alone, which not every language tells from several.
        assert not lost - ({"title"} if isinstance(message, dict) else set()), key


@pytest.mark.parametrize("name", sorted(LANGUAGES))
def test_plural_forms_count_something_and_have_one_for_the_rest(name: str) -> None:
    for key, message in LANGUAGES[name].messages.items():
        if isinstance(message, dict):
            assert message.keys() <= {"zero", "one", "two", "few", "many", "other"} and "other" in message, key
            assert "{count}" in message["other"], key


def test_panels_hold_no_words_themselves() -> None:
    for name, panel in page.PANELS.items():
        markup = re.sub(r"<svg.*?</svg>|<option.*?</option>", "", panel.HTML, flags=re.DOTALL)
        texts = re.findall(r">([^<]+)<", markup) + re.findall(
            r' (?:title|aria-label|placeholder|alt)="([^"]+)"', markup
        )
        for text in texts:
            assert not re.search("[A-Za-z]{2}", NO_WORDS.sub("", text)), (name, text)


def test_panels_are_built_in_english() -> None:
    filled = catalogues.fill('<b data-text="queue.title" data-text-title="theme.title" data-key="T"></b>')
    assert ">Queue</b>" in filled and 'title="Theme  T"' in filled


def test_what_a_language_lacks_is_said_in_english() -> None:
    young = Language(tag="eo", name="Esperanto", messages={"queue.title": "Vico"})
    packed = json.loads(catalogues.pack("eo", young))
    assert packed["messages"]["queue.title"] == "Vico"
    assert packed["messages"]["queue.resume"] == "Resume"
    assert not packed["server"] and not packed["shipped"]


def test_a_language_comes_with_what_the_server_says_in_english() -> None:
    app = FastAPI()
    app.include_router(catalogues.make_router("/ui/1"))
    client = TestClient(app)
    answer = client.get("/ui/1/text/zh.json")
    assert "immutable" in answer.headers["cache-control"]
    assert answer.json()["server"]["Your queue is full"] == "你的队列已满"
    assert client.get("/ui/1/text/xx.json").status_code == 404
    english = client.get("/ui/1/text/en.json").json()
    assert not english["server"] and not english["shipped"]


@pytest.mark.parametrize(
    ("accepted", "chosen", "language"),
    [
        ("zh-CN,zh;q=0.9,en;q=0.8", "", "zh"),
        ("en-GB,zh;q=0.5", "", "en"),
        ("en;q=0.3, zh-Hans-CN;q=0.7", "", "zh"),
        ("zh-CN", "en", "en"),
        ("fr-FR, de;q=0.5", "", "en"),
        ("zh;q=..", "", "zh"),
        ("", "../x", "en"),
        ("", "", "en"),
    ],
)
def test_a_visitors_language(accepted: str, chosen: str, language: str) -> None:
    assert catalogues.choose(accepted, chosen) == language
