"""Whatever the server can say to a visitor is said in every whole language, as core/translate_server.js finds it."""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from pydantic_core._pydantic_core import list_all_errors

from pipelines.catalog import load_catalog
from studio.library.presets.shipped import read_shipped
from studio.library.presets.styles import read_styles
from studio.ui import catalogues
from studio.ui.catalogues import ENGLISH, LANGUAGES
from tests.studio.ui.server_messages import Found, find_messages, split

ROOT = Path(catalogues.__file__).resolve().parents[2]
WHOLE = ["zh"]
OTHERS = sorted(LANGUAGES.keys() - {ENGLISH})
VALUE = "7"  # stands for a count as well as for a name

# Read only by who runs Lumesh, at a terminal or in a log.
OPERATORS = (
    "pipelines/commands/",
    "pipelines/demos/",
    "pipelines/training/",
    "pipelines/files/stage_files.py",  # of the commands that run one stage
    "pipelines/plan/hlo.py",  # a compiler's output that is none
    "pipelines/mesh_text.py",  # --mesh, when anything starts
    "pipelines/runtime/devices/mesh.py",  # the same, when the worker starts
    "pipelines/families/flux2/sharding.py",  # the same
    "pipelines/runtime/kernels/flash.py",  # a mistake of ours
    "pipelines/runtime/programs/aot_packs.py",  # logged: what a pack lacks is compiled
    "studio/access/commands.py",
    "studio/access/safety.py",  # when the server starts
    "studio/access/sessions.py",  # when the server starts
    "studio/access/users.py",  # `app.py users`, and the file that it writes
    "studio/api/adapters/mcp_tools.py",  # for programs
    "studio/api/adapters/openai.py",  # for programs
    "studio/database/",  # when the server starts
    "studio/hosting/",
    "studio/worker/lock.py",  # when the server starts
)
AT_A_TERMINAL = (
    "This stage file cannot be used",
    "The mesh does not fit this machine",
    "A hook cannot be used",
    "Name a function as module:function",
    "{name} is not a function.",
)


@cache
def list_messages() -> tuple[Found, ...]:
    return tuple(
        one
        for one in find_messages(ROOT)
        if not one.file.startswith(OPERATORS) and not one.text.startswith(AT_A_TERMINAL)
    )


class Said:
    """static/js/core/translate_server.js; tests/browser/test_language.py compares the two."""

    def __init__(self, language: str) -> None:
        packed = json.loads(catalogues.pack(language, LANGUAGES[language]))
        self.rules = [(self._compile(english), message) for english, message in packed["server"]]

    @staticmethod
    def _compile(english: str) -> re.Pattern[str]:
        source = re.sub(r"[.*+?^$()|\[\]\\]", lambda sign: "\\" + sign[0], english)
        value = {"count": r"(?P<count>\d[\d,]*)"}
        return re.compile(re.sub(r"\{(\w+)\}", lambda name: value.get(name[1], f"(?P<{name[1]}>.+?)"), source), re.S)

    def find_unsaid(self, text: str) -> list[str]:
        """What of a message would stay in English."""
        if (unsaid := self._find_in_whole(text)) is not None:
            return unsaid
        parts = re.split(r"(?<=[.;]) ", text)
        found = [self._find_in_whole(re.sub(";$", "", part)) for part in parts]
        return [
            one for part, unsaid in zip(parts, found, strict=True) for one in ([part] if unsaid is None else unsaid)
        ]

    def _find_in_whole(self, text: str) -> list[str] | None:
        for pattern, _ in self.rules:
            if match := pattern.fullmatch(text):
                values = [value for value in match.groupdict().values() if re.search(r"[A-Za-z] +[A-Za-z]", value)]
                return [one for value in values for one in self.find_unsaid(value)]
        return None


def write_example(message: str) -> str:
    return "".join(VALUE if is_value else part for part, is_value in split(message))


def test_the_source_is_read() -> None:
    files = {one.file for one in list_messages()}
    assert len(list_messages()) > 500
    assert {"pipelines/runtime/weights/hub.py", "studio/jobs/queue.py", "studio/library/foreign/fit.py"} <= files
    texts = {write_example(one.text) for one in list_messages()}
    assert "7 of your jobs wait already, 7 more do not fit; 7 may wait at a time." in texts
    assert "there is no ControlNet here" in texts
    assert "7 7 jobs first: saves a model switch" in texts


@pytest.mark.parametrize("language", WHOLE)
def test_whatever_the_server_says_is_said_in_a_whole_language(language: str) -> None:
    said = Said(language)
    lacking = {
        f"{one.file}:{one.line}: {one.text!r} lacks {unsaid}"
        for one in list_messages()
        if (unsaid := said.find_unsaid(write_example(one.text)))
    }
    assert not lacking, "\n".join(sorted(lacking))


def list_shipped() -> Iterator[str]:
    for preset in read_shipped().values():
        yield from (preset.title, preset.description, *preset.tags)
    for model in load_catalog().models:
        yield from (model.title, model.description, model.knows)
    for style in read_styles():
        yield style.title


@pytest.mark.parametrize("language", WHOLE)
def test_what_is_shipped_is_called_in_a_whole_language(language: str) -> None:
    shipped, known = {text for text in list_shipped() if text}, LANGUAGES[language].shipped
    assert not known.keys() - shipped
    names = re.compile(r"(Stable Diffusion|FLUX|Wan)[\w .]*")  # the same in any language
    assert not {text for text in shipped - known.keys() if not names.fullmatch(text)}


@pytest.mark.parametrize("language", WHOLE)
def test_a_message_and_what_is_said_for_it_have_the_same_values(language: str) -> None:
    for english, message in LANGUAGES[language].server.items():
        forms = [message] if isinstance(message, str) else message.values()
        for form in forms:
            names = re.findall(r"\{(\w+)\}", english)
            assert len(names) == len(set(names)), english  # a pattern names each of its values once
            assert set(re.findall(r"\{(\w+)\}", form)) == set(names), english


def list_strings() -> Iterator[str]:
    for folder in ("studio", "pipelines"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


@pytest.mark.parametrize("language", OTHERS)
def test_what_the_page_knows_of_the_server_the_server_still_says(language: str) -> None:
    """Its messages are recognised by their English text, so a new wording must reach the catalogue too."""
    pydantic = [
        error["message_template_python"].replace("{expected_plural}", "s").lower() for error in list_all_errors()
    ]
    said = "\n".join([*list_strings(), *(write_example(one.text) for one in find_messages(ROOT)), *pydantic])
    for english in LANGUAGES[language].server:
        for piece in re.split(r"\{\w+\}|: |\bjobs? |; |(?<=\.) |s (?=not)", english):  # where it puts parts together
            assert piece.strip(" .;") in said, (english, piece)
