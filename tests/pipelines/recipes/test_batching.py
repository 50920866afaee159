"""What may share a batch, and that everybody gets from it what they would get alone."""

from collections.abc import Callable

import numpy as np
import pytest

from pipelines.families.fake import FakeFamily
from pipelines.generate import generate, generate_together
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.recipes.batching import find_kind, join, list_seeds, stack_embeddings
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import resolve

Draw = Callable[..., Recipe]


@pytest.fixture
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture
def draw(catalog: Catalog) -> Draw:
    def make(prompt: str = "a lake", *, model: str = "sdxl-base", **fields: object) -> Recipe:
        asked = {"shape": "1024x1024", "steps": 2, "seed": 7, **fields}
        return resolve(Recipe(model=model, prompt=prompt, **asked), catalog)

    return make


def test_prompts_seeds_and_counts_may_differ(draw: Draw) -> None:
    other = draw("a wood", negative_prompt="rain", seed=9, batch_size=3)
    assert find_kind(other) == find_kind(draw()) is not None


@pytest.mark.parametrize(
    "fields",
    [
        {"steps": 3},
        {"guidance_scale": 4.0},
        {"shape": "1152x896"},
        {"scheduler": "ddim"},
        {"model": "demo-sdxl", "shape": "256x256"},
    ],
    ids=str,
)
def test_what_all_rows_share_must_be_alike(draw: Draw, fields: dict[str, object]) -> None:
    assert find_kind(draw(**fields)) != find_kind(draw())


def test_who_starts_from_a_picture_runs_alone(draw: Draw) -> None:
    assert find_kind(draw().model_copy(update={"images": ("a.png",)})) is None


def test_a_joined_recipe_makes_everybodys_outputs_from_their_seeds(draw: Draw) -> None:
    recipes = [draw(batch_size=2), draw("a wood", seed=100)]
    assert join(recipes).batch_size == 3
    assert list_seeds(recipes) == [7, 8, 100]


def test_embeddings_become_a_row_for_each_output(draw: Draw) -> None:
    recipes = [draw(batch_size=2), draw(batch_size=2)]
    one_row, a_row_each = np.zeros((1, 4)), np.arange(8.0).reshape(2, 4)
    stacked = stack_embeddings(recipes, [{"text": one_row}, {"text": a_row_each}])["text"]
    np.testing.assert_array_equal(stacked, np.concatenate([one_row, one_row, a_row_each]))


def test_together_everybody_gets_what_they_get_alone(draw: Draw, catalog: Catalog) -> None:
    family = FakeFamily(catalog.get("demo-sdxl"), compile_s=0, step_s=0)
    small = {"model": "demo-sdxl", "shape": "128x128"}
    recipes = [draw(**small), draw("a wood", seed=100, batch_size=2, **small)]
    together = generate_together(family, recipes).pixels
    np.testing.assert_array_equal(together, np.concatenate([generate(family, recipe).pixels for recipe in recipes]))


def test_a_recipe_without_embeddings_gets_rows_of_another_one(draw: Draw) -> None:
    recipes = [draw(batch_size=count) for count in (2, 1, 3)]
    rows = np.arange(4.0).reshape(1, 4)
    stacked = stack_embeddings(recipes, [None, {"text": rows}, None])["text"]
    assert stacked.shape == (6, 4)
    assert (stacked == rows).all()
