"""LoRAs that a file names: taken over with their weight when they are here, told of when they are not."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from pipelines.recipes.recipe import MAX_LORAS, Lora, Recipe
from studio.library.foreign.found import ReadRecipe

Read = Callable[..., ReadRecipe]
Write = Callable[..., bytes]
SETTINGS = "Steps: 9, Seed: 4, Size: 256x256, Model: demo-sdxl"


def list_loras(found: ReadRecipe) -> list[tuple[str, float]]:
    return [(lora.ref, lora.scale) for lora in found.recipe.loras]


def explain(found: ReadRecipe) -> dict[str, str]:
    return {one.what: one.why for one in found.unusable if one.what.startswith("LoRA")}


@pytest.mark.parametrize(
    ("tag", "weight"),
    [
        ("<lora:pixel:0.8>", 0.8),
        ("<lora:pixel>", 1.0),
        ("<LORA:Pixel:-1>", -1.0),
        ("<lyco:pixel:.5>", 0.5),
        ("<lora:styles/pixel:0.8>", 0.8),
        ("<lora:pixel:0.5:0.75>", 0.75),
        ("<lora:pixel:te=0.5:unet=0.75>", 0.75),
        ("<lora:pixel:te=0.5>", 0.5),
        ("<lora:pixel:0.25:dyn=64>", 0.25),
    ],
)
def test_a_tag_in_the_prompt_becomes_a_lora(read_parameters: Read, tag: str, weight: float) -> None:
    found = read_parameters(f"a boat, {tag}, at sea\n{SETTINGS}", loras=("pixel",))
    assert list_loras(found) == [("pixel", weight)]
    assert found.recipe.prompt == "a boat, at sea"
    assert not found.unusable


def test_a_weight_of_the_words_alone_is_told(read_parameters: Read) -> None:
    assert any("one weight here, 0.75" in note for note in _note(read_parameters, "<lora:pixel:0.5:0.75>"))
    assert not any("one weight" in note for note in _note(read_parameters, "<lora:pixel:0.75>"))


def _note(read_parameters: Read, tag: str) -> tuple[str, ...]:
    return read_parameters(f"a boat {tag}\n{SETTINGS}", loras=("pixel",)).notes


@pytest.mark.parametrize(
    ("tag", "why"),
    [
        ("<lora:other:1>", "is not among the LoRAs here"),
        ("<lora:../pixel/etc:1>", "is not among the LoRAs here"),
        ("<lora:pixel:nine>", "has no weight from -20 to 20"),
        ("<lora:pixel:21>", "has no weight from -20 to 20"),
        ("<lora:pixel:nan>", "has no weight from -20 to 20"),
        ("<lora:pixel:1e999>", "has no weight from -20 to 20"),
    ],
)
def test_one_that_cannot_be_used_says_why(read_parameters: Read, tag: str, why: str) -> None:
    found = read_parameters(f"a boat {tag}\n{SETTINGS}", loras=("pixel",))
    assert list_loras(found) == []
    assert list(explain(found).values()) == [why]
    assert found.recipe.prompt == "a boat"


def test_one_of_another_family_is_left_out(read_parameters: Read) -> None:
    found = read_parameters(f"a boat <lora:pixel:1>\n{SETTINGS}", loras=("pixel",), family="wan")
    assert explain(found) == {"LoRA pixel": "is for another model than Postcards (demo, SDXL layout)"}


@pytest.mark.parametrize(
    ("here", "told"),
    [("Pixel Art", "pixel_art.safetensors"), ("pixel-v1.0", "sub\\pixel-v1.0.safetensors"), ("水彩", "水彩.pt")],
)
def test_programs_write_names_in_their_own_way(read_parameters: Read, here: str, told: str) -> None:
    assert list_loras(read_parameters(f"a <lora:{told}:1>\n{SETTINGS}", loras=(here,))) == [(here, 1.0)]


def test_other_versions_are_others(read_parameters: Read) -> None:
    assert not list_loras(read_parameters(f"a <lora:pixel-v1.0:1>\n{SETTINGS}", loras=("pixel-v10", "", "pixel")))


def test_as_many_as_a_recipe_takes(read_parameters: Read) -> None:
    names = tuple(f"style{number}" for number in range(MAX_LORAS + 2))
    tags = "".join(f"<lora:{name}:0.1>" for name in names)
    found = read_parameters(f"a boat {tags}\n{SETTINGS}", loras=names)
    assert [ref for ref, _ in list_loras(found)] == list(names[:MAX_LORAS])
    assert list(explain(found)) == [f"LoRA {name}" for name in names[MAX_LORAS:]]


FOOOCUS = {
    "base_model": "demo-sdxl",
    "performance": "Speed",
    "prompt": "a boat",
    "loras": [["pixel.safetensors", 0.1, "a"]],
}
INVOKE = {
    "positive_prompt": "a boat",
    "model": {"name": "demo-sdxl"},
    "loras": [{"model": {"key": "2", "name": "pixel"}, "weight": 0.1}],
}
SWARM = {"prompt": "a boat", "model": "demo-sdxl", "loras": ["pixel", "other"], "loraweights": ["0.1"]}
A1111 = f'a boat\n{SETTINGS}, Lora weights: "pixel: 0.1, other: 1", Version: Fooocus v2.5.5'


@pytest.mark.parametrize(
    "texts",
    [
        {"parameters": json.dumps(FOOOCUS)},
        {"parameters": A1111},
        {"invokeai_metadata": json.dumps(INVOKE)},
        {"parameters": json.dumps({"sui_image_params": SWARM})},
    ],
    ids=["Fooocus", "Fooocus as A1111", "InvokeAI", "SwarmUI"],
)
def test_each_programs_own_list_is_read(read: Read, write_png: Write, texts: dict[str, str]) -> None:
    found = read(write_png(**texts), loras=("pixel",))
    assert list_loras(found) == [("pixel", 0.1)]
    assert set(explain(found)) <= {"LoRA other"}


@pytest.mark.parametrize("weight", ["much", [1], {}, True])
def test_a_weight_that_is_none_is_listed(read: Read, write_png: Write, weight: Any) -> None:
    for texts in (
        {"parameters": json.dumps(FOOOCUS | {"loras": [["pixel", weight]]})},
        {"invokeai_metadata": json.dumps(INVOKE | {"loras": [{"model": {"name": "pixel"}, "weight": weight}]})},
        {"parameters": json.dumps({"sui_image_params": SWARM | {"loraweights": [weight]}})},
    ):
        found = read(write_png(**texts), loras=("pixel",))
        assert list_loras(found) == [("pixel", 1)]
        assert any("is no number" in one.why for one in found.unusable)
        assert any("how strongly LoRA pixel applies" in note for note in found.notes)


def test_our_own_files_bring_theirs(read: Read, write_png: Write) -> None:
    loras = (Lora(ref="pixel", scale=0.5), Lora(ref="gone", scale=1), Lora(ref="loud", scale=21.0))
    recipe = Recipe(model="demo-sdxl", prompt="A boat", steps=9, loras=loras)
    found = read(write_png(lumesh=json.dumps(recipe.to_json())), loras=("pixel", "loud"))
    assert list_loras(found) == [("pixel", 0.5)]
    assert explain(found) == {
        "LoRA gone": "is not among the LoRAs here",
        "LoRA loud": "has no weight from -20 to 20",
    }
    assert found.recipe.steps == 9


def test_our_own_files_bring_the_experts(read: Read, write_png: Write) -> None:
    loras = [{"ref": "boats", "scale": 3.0, "expert": "high"}, {"ref": "boats", "scale": 1.0, "expert": "low"}]
    for model, expected in (("wan2.2-a14b", loras), ("wan2.1-14b", [{"ref": "boats", "scale": 3.0}])):
        recipe = {"model": model, "prompt": "A boat", "loras": loras}
        found = read(write_png(lumesh=json.dumps(recipe)), loras=("boats",), family="wan")
        assert found.recipe.to_json()["loras"] == expected
        assert any("has no experts" in note for note in found.notes) == (model == "wan2.1-14b")
