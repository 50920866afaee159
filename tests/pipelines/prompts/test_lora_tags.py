"""LoRA tags in a prompt become LoRAs of the recipe, or are left out with a sentence that says so."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from pipelines.models.catalog import load_catalog
from pipelines.prompts.lora_tags import list_tags, remove_tags
from pipelines.recipes.recipe import Lora, Recipe
from pipelines.recipes.resolving import resolve, take_lora_tags


def save_lora(folder: Path, name: str, tensor: str) -> None:
    folder.mkdir(exist_ok=True)
    save_file({f"{tensor}.lora_{side}.weight": np.zeros((1, 1), np.float32) for side in "AB"}, folder / name)


@pytest.fixture
def loras(tmp_path: Path) -> Path:
    save_lora(tmp_path / "loras", "ink.safetensors", "unet.down_blocks.0.attn")
    save_lora(tmp_path / "loras", "Add Detail.safetensors", "unet.down_blocks.0.attn")
    save_lora(tmp_path / "loras", "wide.safetensors", "transformer.single_transformer_blocks.0.attn")
    return tmp_path / "loras"


def take(folder: Path, prompt: str, **fields: object) -> tuple[Recipe, list[str]]:
    recipe = Recipe.model_validate({"model": "demo-sdxl", "prompt": prompt, **fields})
    return take_lora_tags(recipe, load_catalog(loras_dir=folder))


@pytest.mark.parametrize(
    ("tag", "weights"),
    [
        ("<lora:a:0.8>", (0.8, 0.8)),
        ("<lora:a>", (1, 1)),
        ("<lyco:a:0.5:0.9>", (0.9, 0.5)),
        ("<LORA:a:te=0.5:unet=0.8>", (0.8, 0.5)),
    ],
)
def test_a_tag_is_read_in_each_spelling(tag: str, weights: tuple[float, float]) -> None:
    assert list(list_tags(f"a boat {tag}, at sea")) == [("a", *weights, ())]
    assert remove_tags(f"a boat, {tag}, at sea {tag}") == "a boat, at sea"


def test_a_tag_is_applied_and_said(loras: Path) -> None:
    recipe, notes = take(loras, "a boat <lora:ink:0.8>, <lora:add_detail:1.5>")
    assert recipe.prompt == "a boat"
    assert recipe.loras == (Lora(ref="ink", scale=0.8), Lora(ref="Add Detail", scale=1.5))
    assert notes[0] == "LoRA ink is applied at 0.8, as its tag in the prompt says."
    assert (
        resolve(Recipe(model="demo-sdxl", prompt="a <lora:ink:2>"), load_catalog(loras_dir=loras)).loras[0].scale == 2
    )


@pytest.mark.parametrize(
    ("tag", "told"),
    [
        ("<lora:ink:0.5:0.8>", ["LoRA ink has one weight here, 0.8, for picture and words alike."]),
        ("<lora:ink:1:lbw=OUTALL:stop=10>", ["LoRA ink: lbw=OUTALL:stop=10 in its tag means nothing here."]),
        ("<lora:ink:1:1:8>", ["LoRA ink: 8 in its tag means nothing here."]),
        ("<lora:ink:0.8>", []),
    ],
)
def test_what_of_a_tag_is_not_followed_is_said(loras: Path, tag: str, told: list[str]) -> None:
    recipe, notes = take(loras, f"a boat {tag}")
    assert [lora.ref for lora in recipe.loras] == ["ink"]
    assert notes[1:] == told


@pytest.mark.parametrize(
    ("prompt", "note"),
    [
        ("a <lora:gone:1>", "LoRA gone is not here: its tag is left out."),
        ("a <lora:wide:1>", "LoRA wide is for another model than"),
        ("a <lora:ink:much>", "LoRA ink has no weight"),
        ("a <lora:ink:99>", "LoRA ink has no weight"),
    ],
)
def test_what_cannot_be_applied_is_left_out_and_said(loras: Path, prompt: str, note: str) -> None:
    recipe, notes = take(loras, prompt)
    assert (recipe.prompt, recipe.loras) == ("a", ())
    assert notes[0].startswith(note)


def test_a_lora_that_the_recipe_has_already_keeps_its_scale(loras: Path) -> None:
    recipe, notes = take(loras, "a <lora:ink:0.5>", loras=[{"ref": "ink", "scale": 0.3}])
    assert recipe.loras == (Lora(ref="ink", scale=0.3),)
    assert notes == ["LoRA ink is applied once, at 0.3."]


def test_a_tag_in_the_negative_prompt_is_no_word(loras: Path) -> None:
    recipe, notes = take(loras, "a", negative_prompt="blurry <lora:ink:1>")
    assert (recipe.negative_prompt, recipe.loras) == ("blurry", ())
    assert "negative prompt" in notes[0]
