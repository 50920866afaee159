"""Which steps a step cache reuses, what recipes may ask for, and where a model's ratios come from."""

from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import RecipeError
from pipelines.models.catalog import Catalog, load_catalog, read_data_dir
from pipelines.program_sets import ProgramSet, choose_prewarmed
from pipelines.recipes.batching import find_kind
from pipelines.recipes.cache_kinds import MAGCACHE
from pipelines.recipes.recipe import Recipe, read_recipe
from pipelines.recipes.resolving import resolve
from pipelines.recipes.step_cache import OWN_FILE, StepCache, Strength, count_before, keep


@pytest.fixture(name="catalog", scope="module")
def load_shipped() -> Catalog:
    return load_catalog()


def draw(catalog: Catalog, model: str, **fields: Any) -> Recipe:
    return resolve(read_recipe({"model": model, "prompt": "a boat", "seed": 1} | fields), catalog)


@pytest.mark.parametrize(
    ("model", "text", "expected"),
    [  # as MaxDiffusion's rule gives them from the same ratios
        ("wan2.1-14b", "0.12,2", "##########--#--#--#--#--#--#--#--#--#--#--#-#-#-##"),
        ("wan2.1-14b", "0.12,4,0.2", "##########----#----#----#----#----#---#--#--#-#-##"),
        ("wan2.1-14b", "strong", "##########------#------#------#-----#----#--#--#-#"),
    ],
)
def test_reused_steps_follow_from_the_ratios(catalog: Catalog, model: str, text: str, expected: str) -> None:
    recipe = draw(catalog, model, steps=50, step_cache=text)
    assert "".join("-" if step in recipe.reused_steps else "#" for step in range(50)) == expected
    assert recipe.computed_steps == expected.count("#")


def test_the_second_expert_starts_anew(catalog: Catalog) -> None:
    recipe = draw(catalog, "wan2.2-a14b", step_cache="mild")
    boundary = count_before(0.875, steps=40, flow_shift=12.0)
    assert boundary not in recipe.reused_steps
    assert not {*range(boundary, boundary + 2)} & {*recipe.reused_steps}, "a fifth of its steps is computed first"
    assert any(step > boundary for step in recipe.reused_steps)


@pytest.mark.parametrize("shift", [1.0, 5.0, 12.0])
def test_the_boundary_is_where_the_levels_cross_it(shift: float) -> None:
    assert count_before(0.0, steps=8, flow_shift=shift) == 8
    assert 0 < count_before(0.875, steps=40, flow_shift=shift) < 40


def test_off_is_no_cache_at_all(catalog: Catalog) -> None:
    plain, off = draw(catalog, "wan2.1-14b"), draw(catalog, "wan2.1-14b", step_cache="off")
    assert off == plain
    assert plain.reused_steps == ()
    assert not {"step_cache", "reused_steps"} & plain.to_json().keys()


def test_a_strength_in_numbers_is_written_in_one_way(catalog: Catalog) -> None:
    written = draw(catalog, "wan2.1-14b", step_cache=" 0.120, 2 ")
    assert written.step_cache == "0.12,2,0.2"
    assert Recipe.model_validate(written.to_json()) == written
    assert draw(catalog, "wan2.1-14b", step_cache="0.12,2,0.2").reused_steps == written.reused_steps


def test_what_a_recipe_says_of_its_reused_steps_is_not_believed(catalog: Catalog) -> None:
    recipe = draw(catalog, "wan2.1-14b", reused_steps=[1, 2, 3])
    assert recipe.reused_steps == ()


@pytest.mark.parametrize(
    ("model", "text", "expected"),
    [
        ("wan2.1-14b", "harder", "allowed: off, mild, strong, or an error up to 10"),
        ("wan2.1-14b", "11,2", "is not known"),
        ("wan2.1-14b", "0.1,2,1.5", "is not known"),
        ("sdxl-base", "mild", "sdxl-base has no step cache"),
        ("flux2-dev", "mild", "run python -m pipelines calibrate flux2-dev once"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(catalog: Catalog, model: str, text: str, expected: str) -> None:
    with pytest.raises(RecipeError) as raised:
        draw(catalog, model, step_cache=text)
    assert expected in str(raised.value)


def test_every_model_takes_off(catalog: Catalog) -> None:
    for model in catalog.models:
        if not model.min_images:
            assert draw(catalog, model.id, step_cache="off").step_cache is None


def test_only_equal_strengths_share_a_batch_and_all_share_a_program(catalog: Catalog) -> None:
    mild, strong, off = (draw(catalog, "wan2.1-14b", step_cache=text) for text in ("mild", "strong", "off"))
    assert len({find_kind(one) for one in (mild, strong, off)}) == 3
    programs = [ProgramSet.of(one, references=None, text_chunks=1) for one in (mild, strong, off)]
    assert programs[0] == programs[1] != programs[2]
    model = catalog.get("wan2.1-14b")
    assert programs[0].name_for(model) == f"{model.default_shape} with a step cache"


def test_programs_with_a_cache_are_prewarmed_where_they_are_asked_for(catalog: Catalog) -> None:
    model = catalog.get("wan2.1-14b")
    (found,) = choose_prewarmed([f"{model.default_shape}~"], model)
    assert found.cache_kind == MAGCACHE
    assert choose_prewarmed(["1024x1024~"], catalog.get("sdxl-base")) == []


def test_what_was_found_here_gives_a_model_its_cache(tmp_path: Path) -> None:
    usual = Strength.parse("0.12,2")
    keep(tmp_path / OWN_FILE, "flux2-dev", StepCache(ratios=((1.0,) * 50,), mild=usual, strong=Strength.parse("1,6")))
    keep(tmp_path / OWN_FILE, "nobody", StepCache(ratios=((1.0,),), mild=usual, strong=usual))
    catalog = read_data_dir(tmp_path)
    assert draw(catalog, "flux2-dev", step_cache="mild").computed_steps == 10 + 13
    assert not catalog.unusable


def test_a_damaged_file_is_told_and_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / OWN_FILE).write_text('{"wan2.1-14b": {"ratios": []}}')
    catalog = read_data_dir(tmp_path)
    assert catalog.get("wan2.1-14b").step_cache is not None
    assert [one.name for one in catalog.unusable] == [OWN_FILE]
