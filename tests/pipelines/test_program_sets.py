"""A set of programs has one name wherever it is spoken of, and `--prewarm` names sets."""

import dataclasses

import pytest

from pipelines.models.catalog import Catalog, Shape
from pipelines.pictures.references import References
from pipelines.program_sets import ProgramSet, choose_prewarmed, drop_count, list_variants
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import resolve


def test_the_usual_set_is_called_by_its_size_alone_and_others_say_what_differs(catalog: Catalog) -> None:
    model, klein = catalog.get("demo-sdxl"), catalog.get("flux2-klein-4b")
    usual = ProgramSet.usual(model, model.default_shape)
    assert usual.name_for(model) == "256x256"
    many = dataclasses.replace(usual, batch_size=4, is_guided=False, text_chunks=2)
    assert many.name_for(model) == "256x256 for 2 texts ×4 without guidance"
    picture = References(count=1, size=Shape(width=512, height=512))
    guided = ProgramSet(shape=Shape(width=512, height=512), references=picture, is_guided=True)
    assert guided.name_for(klein) == "512x512 with 1 of 512x512 with guidance"
    assert drop_count(many.name_for(model)) == "256x256 for 2 texts without guidance"


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "256x256"),
        ({"guidance_scale": 9}, "256x256"),
        ({"guidance_scale": 1}, "256x256 without guidance"),
        ({"batch_size": 8, "steps": 3}, "256x256 ×8"),
    ],
)
def test_a_recipes_programs_depend_on_images_and_guidance_alone(catalog: Catalog, fields: dict, name: str) -> None:
    recipe = resolve(Recipe(model="demo-sdxl", prompt="A boat", **fields), catalog)
    assert ProgramSet.of(recipe, references=None, text_chunks=1).name_for(catalog.get("demo-sdxl")) == name


def test_variants_are_all_numbers_and_both_ways_of_guidance_but_for_the_usual_one(catalog: Catalog) -> None:
    model = catalog.get("wan2.1-1.3b")
    names = [one.name_for(model) for one in list_variants(model, model.default_shape)]
    assert names == ["832x480x81 without guidance", "832x480x81 ×2", "832x480x81 ×2 without guidance"]
    assert len(list_variants(model, model.default_shape, (1, 4))) == 1


@pytest.mark.parametrize(
    ("entry", "model_id", "names"),
    [
        ("256x256*4", "demo-sdxl", ["256x256 ×4"]),
        ("demo-sdxl:256x256*4", "demo-sdxl", ["256x256 ×4"]),
        ("demo-sdxl:256x256*4", "demo-flux2", []),
        ("512x512+1*2", "flux2-klein-4b", ["512x512 with 1 of 512x512 ×2"]),
        ("512x512+1*2", "demo-sdxl", []),
        ("all*2", "demo-wan", ["128x128x17 ×2", "160x96x17 ×2"]),
        ("832x480x81*4", "wan2.1-1.3b", []),
    ],
)
def test_prewarming_takes_what_a_model_has(catalog: Catalog, entry: str, model_id: str, names: list[str]) -> None:
    model = catalog.get(model_id)
    assert [one.name_for(model) for one in choose_prewarmed([entry], model)] == names
