"""A recipe's own noise levels: what they may be, what they stand for, and what has no effect beside them."""

from typing import Any

import pytest

from pipelines.errors import RecipeError
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.recipes.recipe import Recipe, read_recipe
from pipelines.recipes.resolving import list_idle, resolve
from pipelines.recipes.sigmas import read_sigmas

LIGHTX2V = [1000, 937.5, 833.3, 625]


@pytest.fixture(name="catalog", scope="module")
def load_shipped() -> Catalog:
    return load_catalog()


def ask(model: str, **fields: Any) -> Recipe:
    return read_recipe({"model": model, "prompt": "a boat", "seed": 1} | fields)


def test_a_flows_timesteps_are_its_levels_and_the_steps(catalog: Catalog) -> None:
    recipe = resolve(ask("wan2.1-14b", scheduler="flow_match_euler", sigmas=LIGHTX2V), catalog)
    assert recipe.sigmas == (1.0, 0.9375, 0.8333, 0.625)
    assert recipe.steps == 4
    again = resolve(Recipe.model_validate(recipe.to_json()), catalog)
    assert again == recipe


def test_a_last_zero_may_be_there(catalog: Catalog) -> None:
    with_zero, without = (
        resolve(ask("sdxl-base", scheduler="euler", sigmas=sigmas), catalog) for sigmas in ([14.6, 3.0, 0], [14.6, 3.0])
    )
    assert with_zero == without
    assert with_zero.steps == 2


def test_a_recipe_without_them_says_nothing_of_them(catalog: Catalog) -> None:
    plain = resolve(ask("sdxl-base"), catalog)
    assert plain.sigmas is None
    assert "sigmas" not in plain.to_json()
    assert resolve(ask("sdxl-base", sigmas=None), catalog) == resolve(ask("sdxl-base", sigmas=[]), catalog) == plain


@pytest.mark.parametrize(
    ("model", "fields", "expected"),
    [
        ("wan2.1-14b", {"sigmas": [1.0, 0.5, 0.6]}, "fall from at most 1"),
        ("wan2.1-14b", {"sigmas": [2000, 500]}, "fall from at most 1"),
        ("wan2.1-14b", {"sigmas": [1.0, float("nan")]}, "fall from at most 1"),
        ("sdxl-base", {"sigmas": [14.6, -1.0]}, "stay above 0"),
        ("sdxl-base", {"sigmas": [0.0]}, "stay above 0"),
        ("sdxl-base", {"sigmas": [14.6, 1.0], "scheduler": "ddim"}, "take one of: euler, dpmpp_sde, er_sde"),
        ("sdxl-base", {"sigmas": [14.6, 1.0], "scheduler": "euler_karras"}, "spaces its steps itself"),
        ("sdxl-base", {"sigmas": [200.0 - n for n in range(110)]}, "are too many"),
    ],
)
def test_what_cannot_be_is_refused_at_its_field(
    catalog: Catalog, model: str, fields: dict[str, Any], expected: str
) -> None:
    with pytest.raises(RecipeError) as raised:
        resolve(ask(model, **fields), catalog)
    assert expected in str(raised.value)
    assert "sigmas:" in str(raised.value) or "sigmas" in str(raised.value)


def test_what_has_no_effect_beside_them_is_said(catalog: Catalog) -> None:
    asked = ask("wan2.1-14b", scheduler="flow_match_euler", sigmas=LIGHTX2V, steps=30, flow_shift=5.0)
    said = [str(note) for note in list_idle(asked, resolve(asked, catalog), catalog.get("wan2.1-14b"))]
    assert "4 sigmas make 4 steps: the 30 asked for have no effect." in said
    assert "Sigmas are taken as they are: the flow shift of 5 has no effect." in said
    quiet = ask("wan2.1-14b", scheduler="flow_match_euler", sigmas=LIGHTX2V, steps=4)
    assert list_idle(quiet, resolve(quiet, catalog), catalog.get("wan2.1-14b")) == []


def test_the_second_expert_begins_where_they_cross_its_boundary(catalog: Catalog) -> None:
    sigmas = [1 - step / 40 for step in range(20)] + [0.4 - step / 60 for step in range(20)]
    recipe = resolve(ask("wan2.2-a14b", scheduler="flow_match_euler", sigmas=sigmas, step_cache="mild"), catalog)
    boundary = sum(sigma >= 0.875 for sigma in sigmas)
    assert boundary == 6
    assert boundary not in recipe.reused_steps
    assert recipe.reused_steps


def test_a_step_that_asks_twice_takes_twice_the_time(catalog: Catalog) -> None:
    twice, once = (resolve(ask("sdxl-base", scheduler=name, steps=20), catalog) for name in ("dpmpp_sde", "euler"))
    assert (twice.denoising_steps, twice.computed_steps, once.computed_steps) == (20, 39, 20)
    with pytest.raises(RecipeError, match="at most 64"):
        resolve(ask("sdxl-base", scheduler="dpmpp_sde", steps=65), catalog)


def test_text_is_read_as_people_write_it() -> None:
    assert read_sigmas("1000, 937.5 833.3,625") == (1000, 937.5, 833.3, 625)
    with pytest.raises(ValueError, match="are not numbers"):
        read_sigmas("1000;900")
