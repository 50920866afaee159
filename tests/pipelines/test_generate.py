"""The method on one screen, on the fake family: phases in order, one compilation a shape, cancelling between steps."""

import numpy as np
import pytest

from pipelines.errors import Cancelled
from pipelines.families.fake import FakeFamily
from pipelines.generate import generate, uses_cfg
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import resolve
from pipelines.stages import PHASES, Progress


@pytest.fixture(name="catalog", scope="module")
def load() -> Catalog:
    return load_catalog()


@pytest.fixture
def family(catalog: Catalog) -> FakeFamily:
    return FakeFamily(catalog.default, compile_s=0.0, step_s=0.0)


@pytest.fixture
def recipe(catalog: Catalog) -> Recipe:
    return resolve(Recipe(model=catalog.default.id, prompt="A boat", steps=4, seed=1, batch_size=2), catalog)


def test_pixels_have_the_recipes_shape_and_batch(family: FakeFamily, recipe: Recipe) -> None:
    shape = recipe.parsed_shape
    pixels = generate(family, recipe).pixels
    assert (pixels.shape, pixels.dtype) == ((2, shape.height, shape.width, 3), np.uint8)


def test_phases_come_in_order_and_every_step_is_told(family: FakeFamily, recipe: Recipe) -> None:
    seen: list[Progress] = []
    generate(family, recipe, on_progress=seen.append)
    order = [PHASES.index(progress.phase) for progress in seen]
    assert order == sorted(order)
    assert [progress.done for progress in seen if progress.phase == "denoising"] == [0, 1, 2, 3, 4]


def test_a_shape_is_compiled_once(family: FakeFamily, recipe: Recipe) -> None:
    assert [generate(family, recipe).compiles for _ in range(2)] == [1, 0]


def test_timings_add_up(family: FakeFamily, recipe: Recipe) -> None:
    timings = generate(family, recipe).timings
    assert timings.step_ms == pytest.approx(250 * timings.denoise_s)
    assert timings.total_s >= timings.encode_s + timings.denoise_s + timings.decode_s


def test_cancelling_ends_the_work_after_the_current_step(family: FakeFamily, recipe: Recipe) -> None:
    seen = []

    def cancel_after_two(progress: Progress) -> None:
        seen.append(progress.done)
        if progress.phase == "denoising" and progress.done == 2:
            raise Cancelled

    with pytest.raises(Cancelled):
        generate(family, recipe, on_progress=cancel_after_two)
    assert seen[-1] == 2


@pytest.mark.parametrize(("guidance_scale", "expected"), [(0.0, False), (1.0, False), (1.1, True)])
def test_guidance_of_one_or_less_runs_one_forward(recipe: Recipe, guidance_scale: float, expected: object) -> None:
    assert uses_cfg(recipe.model_copy(update={"guidance_scale": guidance_scale})) is expected
