"""The words that a small model never learnt are named, and nothing else is: no word that it knows in another form."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipelines.demos.motions.captions import vocabulary_text as tell_clips
from pipelines.demos.postcards.captions import vocabulary_text as tell_postcards
from pipelines.models.catalog import Model, load_catalog
from pipelines.prompts.reading import list_notes
from pipelines.prompts.words import MAX_NAMED, WORDS_FILE, find_unknown

CATALOG = load_catalog()
DEMOS = [model for model in CATALOG.models if model.is_demo]
SDXL = CATALOG.get("demo-sdxl")

every_demo = pytest.mark.parametrize("model", DEMOS, ids=[model.id for model in DEMOS])


def find(prompt: str, model: Model = SDXL) -> list[str]:
    unknown = find_unknown(model, prompt)
    return [*unknown.words] if unknown else []


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("portrait of a cat astronaut, cinematic", ["cat", "astronaut"]),
        ("A Cat, a cat and a DRAGON", ["Cat", "DRAGON"]),
        ("(unicorn:1.3) by the sea, {whale|shark}", ["unicorn", "whale", "shark"]),
        ("一只猫在 ocean", ["一只猫在"]),
        ("a sunny beach", ["sunny", "beach"]),
    ],
)
def test_unknown_words_are_named_once_and_as_they_are_written(prompt: str, words: list[str]) -> None:
    assert find(prompt) == words


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "Two RED sailboats, and HOUSES on a hill: night skies!",
        "hot-air balloons over cities; a hot air balloon, lighthouses",
        "masterpiece, best quality, highly detailed 8k photo of the sea, 85 mm, f/1.8",
        "A beautiful, peaceful little cottage that stands under the clouds",
        "a mountain BREAK meadows",
    ],
)
def test_other_forms_and_words_that_name_nothing_make_no_noise(prompt: str) -> None:
    assert find(prompt) == []


@every_demo
def test_every_word_that_a_demo_learnt_from_is_known(model: Model) -> None:
    tell = tell_clips if model.is_video else tell_postcards
    captions = " ".join(tell(np.random.default_rng(1), 1500))
    assert find(captions, model) == []
    assert find(" ".join(example.prompt for example in model.examples), model) == []


def test_the_word_list_lies_in_the_models_folder_and_without_it_every_word_is_known(tmp_path: Path) -> None:
    mine = replace(SDXL, path=tmp_path)
    assert find("a cat", mine) == []
    (tmp_path / WORDS_FILE).write_text("cat\n")
    assert find("cats and boats", mine) == ["boats"]
    (tmp_path / WORDS_FILE).write_text("cat\nboat\n")
    assert find("cats and boats", mine) == []
    assert find("a cat astronaut", CATALOG.get("sdxl-base")) == []


def test_what_comes_nearest_is_offered() -> None:
    unknown = find_unknown(SDXL, "a dragon over the mountains at sunrise")
    assert unknown is not None
    assert unknown.offers[0].prompt == "A purple hot-air balloon over the mountains at sunrise"
    assert len({*unknown.offers}) == 3
    other = find_unknown(SDXL, "cat")
    assert other is not None
    assert other.offers == SDXL.examples[:3]


def test_a_lora_may_know_any_word() -> None:
    assert find_unknown(SDXL, "a zorb", has_loras=True) is None
    assert list_notes(SDXL, "a zorb", "", has_loras=True) == []


def test_many_unknown_words_are_not_all_named() -> None:
    assert len(find(" ".join(f"zz{chr(97 + number)}" for number in range(20)))) == MAX_NAMED


def test_a_note_says_it_of_the_prompt_alone() -> None:
    [note] = list_notes(SDXL, "a cat at night", "a dog")
    assert note.startswith('Postcards (demo, SDXL layout) knows no "cat". It can draw, say, "A blue house in the snow')
    assert list_notes(replace(SDXL, examples=()), "a cat", "") == ['Postcards (demo, SDXL layout) knows no "cat".']
