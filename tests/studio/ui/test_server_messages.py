"""What the server says to visitors has a code, and every whole language translates each code."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from pipelines.models.catalog import load_catalog
from studio.library.presets.shipped import read_shipped
from studio.library.presets.styles import read_styles
from studio.ui.catalogues import LANGUAGES
from tests.places import ROOT

WHOLE = ["zh"]
CODES_OF = {"say": 1, "say_count": 2}  # a function of pipelines/messages.py: its leading arguments that are codes


class Said(NamedTuple):
    """A sentence where it is said: the names of the values that it is given, None where only running it would tell."""

    place: str
    code: str
    given: frozenset[str] | None


@cache
def list_said() -> tuple[Said, ...]:
    return tuple(said for file in list_files() for said in read(file))


def list_files() -> Iterator[Path]:
    for folder in ("pipelines", "studio"):
        yield from (ROOT / folder).rglob("*.py")


def read(file: Path) -> Iterator[Said]:
    tree = ast.parse(file.read_text("utf-8"))
    own = file.name == "messages.py" and file.parent.name == "pipelines"
    imported = {
        name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "pipelines.messages"
        for name in node.names
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        if node.func.id not in CODES_OF or not (own or node.func.id in imported):
            continue
        names = {keyword.arg for keyword in node.keywords}
        for code in node.args[: CODES_OF[node.func.id]]:
            place = f"{file.relative_to(ROOT)}:{code.lineno}"
            if isinstance(code, ast.Constant) and isinstance(code.value, str):
                yield Said(place, code.value, None if None in names else frozenset(filter(None, names)))
            else:
                assert own, f"{place}: a code is a literal, so that it can be found and translated"


def names_in(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\{(\w+)\}", text))


def test_the_source_is_read() -> None:
    codes = {said.code for said in list_said()}
    assert len(codes) > 500
    assert "{count} of your jobs wait already, {more} more do not fit; {limit} may wait at a time." in codes
    assert "{count} {model} jobs first: saves a model switch" in codes


def test_a_sentence_is_given_the_values_that_it_names() -> None:
    wrong = [said for said in list_said() if said.given is not None and said.given != names_in(said.code)]
    assert not wrong


def test_no_value_that_a_module_names_holds_words_of_english() -> None:
    """They would stand in sentences of other languages."""
    wrong = [
        f"{file.relative_to(ROOT)}: {name} = {value!r}"
        for file in list_files()
        for name, value in find_named_values(ast.parse(file.read_text("utf-8")))
        if re.search(r"\b(and|or|of|the|with)\b", value)
    ]
    assert not wrong


def find_named_values(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Finds texts of the module's own names that are handed to sentences as values."""
    texts = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CODES_OF:
            for keyword in node.keywords:
                if isinstance(keyword.value, ast.Name) and keyword.value.id in texts:
                    yield keyword.value.id, texts[keyword.value.id]


@pytest.mark.parametrize("language", WHOLE)
def test_a_whole_language_translates_every_code_and_no_other(language: str) -> None:
    known, said = LANGUAGES[language].server.keys(), {one.code: one.place for one in list_said()}
    assert not {code: place for code, place in said.items() if code not in known}, "add them to the catalogue"
    assert not known - said.keys(), "nobody says these"


@pytest.mark.parametrize("language", WHOLE)
def test_a_translation_has_the_values_of_its_sentence(language: str) -> None:
    for code, message in LANGUAGES[language].server.items():
        for form in [message] if isinstance(message, str) else message.values():
            assert names_in(form) == names_in(code), code


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
    names = re.compile(r"(Stable Diffusion|FLUX|Wan|Z-Image)[\w .]*")  # the same in any language
    assert not {text for text in shipped - known.keys() if not names.fullmatch(text)}
