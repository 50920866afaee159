"""What recipes may ask of TaylorSeer, and which steps are foreseen then."""

from typing import Any

import pytest

from pipelines.errors import RecipeError
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.program_sets import ProgramSet, choose_prewarmed
from pipelines.recipes.cache_kinds import TAYLOR
from pipelines.recipes.recipe import Recipe, read_recipe
from pipelines.recipes.resolving import list_idle, resolve
from pipelines.recipes.step_cache import count_before
from pipelines.recipes.taylor import Foresight


@pytest.fixture(name="catalog", scope="module")
def load_shipped() -> Catalog:
    return load_catalog()


def draw(catalog: Catalog, model: str, **fields: Any) -> Recipe:
    return resolve(read_recipe({"model": model, "prompt": "a boat", "seed": 1} | fields), catalog)


def test_numbers_are_written_in_one_way(catalog: Catalog) -> None:
    usual = draw(catalog, "wan2.1-14b", step_cache="Taylor")
    assert usual.step_cache == str(Foresight()) == "taylor,3,4"
    assert draw(catalog, "wan2.1-14b", step_cache="taylor, 3") == usual
    assert resolve(Recipe.model_validate(usual.to_json()), catalog) == usual
    assert usual.computed_steps < usual.denoising_steps / 2 + 4


def test_a_model_without_known_ratios_foresees_too(catalog: Catalog) -> None:
    recipe = draw(catalog, "flux2-dev", step_cache="taylor,4,3", steps=20)
    assert "".join("-" if step in recipe.reused_steps else "#" for step in range(20)) == "###-#---#---#---#---"


def test_the_second_expert_starts_anew(catalog: Catalog) -> None:
    recipe = draw(catalog, "wan2.2-a14b", step_cache="taylor,5,3")
    boundary = count_before(0.875, steps=40, flow_shift=12.0)
    assert not {*range(boundary, boundary + 3)} & {*recipe.reused_steps}
    assert boundary + 3 in recipe.reused_steps


@pytest.mark.parametrize(
    ("model", "text", "expected"),
    [
        ("wan2.1-14b", "taylor,0", "write taylor, or taylor,3,4"),
        ("wan2.1-14b", "taylor,3,0", "write taylor, or taylor,3,4"),
        ("wan2.1-14b", "taylor,50", "write taylor, or taylor,3,4"),
        ("wan2.1-14b", "taylorseer", "write taylor, or taylor,3,4"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(catalog: Catalog, model: str, text: str, expected: str) -> None:
    with pytest.raises(RecipeError) as raised:
        draw(catalog, model, step_cache=text)
    assert expected in str(raised.value)


def test_few_steps_are_warned_of(catalog: Catalog) -> None:
    model = catalog.get("flux2-klein-4b")
    asked = read_recipe({"model": model.id, "prompt": "a boat", "step_cache": "taylor", "steps": 8})
    said = [str(note) for note in list_idle(asked, resolve(asked, catalog), model)]
    assert "TaylorSeer wants 20 steps or more: of 8 it makes another picture." in said


def test_it_is_not_for_steps_that_go_back(catalog: Catalog) -> None:
    assert draw(catalog, "sdxl-base", step_cache="taylor").reused_steps
    with pytest.raises(RecipeError, match="dpmpp_sde goes back in each"):
        draw(catalog, "sdxl-base", step_cache="taylor", scheduler="dpmpp_sde")


def test_its_programs_are_their_own_and_all_strengths_share_them(catalog: Catalog) -> None:
    model = catalog.get("wan2.1-14b")
    recipes = [draw(catalog, "wan2.1-14b", step_cache=text) for text in ("taylor", "taylor,5,3", "mild", "off")]
    sets = [ProgramSet.of(one, references=None, text_chunks=1) for one in recipes]
    assert sets[0] == sets[1]
    assert len({*sets}) == 3
    assert sets[0].name_for(model) == f"{model.default_shape} with TaylorSeer"
    (found,) = choose_prewarmed([f"{model.default_shape}~taylor"], model)
    assert found.cache_kind == TAYLOR
    (found,) = choose_prewarmed(["1024x1024~taylor"], catalog.get("sdxl-base"))
    assert found.cache_kind == TAYLOR
