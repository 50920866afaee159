"""The shipped demo model: small, readable by plain diffusers, and the same picture here and there.

Not here: how well it follows prompts (pipelines/training/judge.py scores that).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.catalog import load_catalog
from pipelines.generate import generate
from pipelines.recipe import Recipe, resolve

MODEL = load_catalog().get("demo-sdxl")
FOLDER = MODEL.path
MAX_BYTES = 15_000_000
MAX_DIFFERENCE = 2

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the demo model is not trained yet")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import CLIPTokenizer

    return CLIPTokenizer.from_pretrained(FOLDER / "tokenizer")


def test_it_is_small_enough_for_the_repository() -> None:
    assert sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file()) <= MAX_BYTES


def test_it_comes_with_its_preview_map() -> None:
    assert (FOLDER / "preview.json").exists()


@pytest.mark.parametrize(
    "text",
    ["a beautiful sunset", "zwölf Boxkämpfer", "日本の山", "😀", "an astronaut, 4k, <|&%$ 42!?", *MODEL.examples],
)
def test_its_tokenizer_spells_any_text(tokenizer: Any, text: str) -> None:
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.eos_token_id not in ids[:-1]
    assert tokenizer.unk_token_id not in ids[1:-1]


@pytest.mark.parametrize("text", MODEL.examples)
def test_the_example_prompts_fit(tokenizer: Any, text: str) -> None:
    assert len(tokenizer(text)["input_ids"]) <= tokenizer.model_max_length


def test_its_picture_is_plain_diffusers_own(
    load_family: Callable[..., Any],
    ask_diffusers: Callable[[Path, Recipe], np.ndarray],
    find_difference: Callable[[np.ndarray, np.ndarray], int],
) -> None:
    recipe = resolve(Recipe(model=MODEL.id, prompt=MODEL.examples[0], shape="256x256", seed=42), load_catalog())
    pixels = generate(load_family(MODEL.id), recipe).pixels
    assert find_difference(pixels, ask_diffusers(FOLDER, recipe)) <= MAX_DIFFERENCE
    assert pixels.std() > 20  # a picture, not a grey card
