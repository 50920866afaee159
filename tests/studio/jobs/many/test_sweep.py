"""One recipe, many jobs: how many, with which seeds, and never too many."""

from typing import Any

import pytest
from pydantic import ValidationError

from pipelines.errors import RecipeError
from pipelines.recipes.recipe import Recipe
from studio.jobs.many.sweep import MAX_JOBS, Expanded, Sweep, expand


def read(prompt: str, *, draws: int | None = None, seeds: int = 1, **fields: Any) -> Expanded:
    recipe = Recipe(model="demo", prompt=prompt, **fields)
    return expand(Sweep(recipe=recipe, draws=draws, seeds=seeds), lambda _name: ["a", "b"])


def seeds_of(expanded: Expanded) -> list[int | None]:
    return [recipe.seed for recipe in expanded.list_recipes()]


def test_every_prompt_comes_with_every_seed() -> None:
    recipes = read("{red|blue} boat", seeds=2, seed=7).list_recipes()
    assert [(recipe.prompt, recipe.seed) for recipe in recipes] == [
        ("red boat", 7),
        ("red boat", 8),
        ("blue boat", 7),
        ("blue boat", 8),
    ]


def test_a_batch_leaves_its_seeds_to_itself() -> None:
    assert seeds_of(read("boat", seeds=3, seed=10, batch_size=4)) == [10, 14, 18]


def test_without_a_seed_prompts_differ_in_theirs_and_a_sweep_counts_from_a_drawn_one() -> None:
    assert seeds_of(read("{a|b}")) == [None, None]
    first, second = seeds_of(read("boat", seeds=2))
    assert second == first + 1


def test_the_preview_counts_what_will_be_queued() -> None:
    told = read("__list__ {1|2|3|4}", draws=6, seeds=2, batch_size=2).describe()
    assert (told["count"], told["prompts"], told["combinations"], told["images"]) == (12, 6, 8, 24)
    assert told["examples"] == ["a 1", "a 2", "a 3", "a 4", "b 1"]
    assert len(read("__list__ {1|2|3|4}", draws=6, seeds=2).list_recipes()) == 12


def test_too_many_are_counted_and_not_made() -> None:
    expanded = read("{a|b}" * 10, seeds=2)
    assert expanded.describe()["count"] == 2048
    with pytest.raises(RecipeError, match=r"stands for 2,048 jobs; at most 100"):
        expanded.list_recipes()
    assert len(read("{a|b}" * 10, draws=50, seeds=2).list_recipes()) == MAX_JOBS


def test_the_same_seed_draws_the_same_prompts() -> None:
    draws = [[recipe.prompt for recipe in read("{a|b}" * 8, draws=9, seed=3).list_recipes()] for _ in range(2)]
    assert draws[0] == draws[1]


def test_numbers_out_of_range_are_refused() -> None:
    for wrong in ({"seeds": 0}, {"seeds": MAX_JOBS + 1}, {"draws": 0}):
        with pytest.raises(ValidationError):
            read("boat", **wrong)
