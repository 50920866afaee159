"""The fake family draws like a model: the same seed the same picture, noise first, batches as singles."""

import numpy as np
import pytest

from pipelines.catalog import Catalog, load_catalog
from pipelines.errors import LumeshError
from pipelines.fake import FakeFamily
from pipelines.generate import generate
from pipelines.recipe import Recipe, resolve
from pipelines.stages import Progress


@pytest.fixture(name="catalog", scope="module")
def load() -> Catalog:
    return load_catalog()


@pytest.fixture
def family(catalog: Catalog) -> FakeFamily:
    return FakeFamily(catalog.default, compile_s=0.0, step_s=0.0)


def draw(family: FakeFamily, prompt: str = "A boat at sunset", **fields: object) -> np.ndarray:
    catalog = load_catalog()
    recipe = resolve(Recipe(model=catalog.default.id, prompt=prompt, steps=2, **{"seed": 1, **fields}), catalog)
    return generate(family, recipe).pixels


def test_a_picture_depends_on_seed_and_prompt_alone(family: FakeFamily) -> None:
    assert np.array_equal(draw(family), draw(family))
    assert not np.array_equal(draw(family), draw(family, seed=2))
    assert not np.array_equal(draw(family), draw(family, "A boat at night"))


def test_picture_n_of_a_batch_is_the_picture_of_seed_plus_n(family: FakeFamily) -> None:
    batch = draw(family, batch_size=3)
    assert np.array_equal(batch[2], draw(family, seed=3)[0])


def test_previews_are_small_and_lose_their_noise(family: FakeFamily, catalog: Catalog) -> None:
    recipe = resolve(Recipe(model=catalog.default.id, prompt="A boat", steps=6, seed=1), catalog)
    previews = []

    def keep(progress: Progress) -> None:
        if progress.draw_preview:
            previews.append(progress.draw_preview().astype(float))

    generate(family, recipe, on_progress=keep)
    roughness = [np.abs(np.diff(preview, axis=2)).mean() for preview in previews]
    assert roughness == sorted(roughness, reverse=True)
    assert previews[0].shape[1] < recipe.parsed_shape.height


def test_it_fails_when_asked(family: FakeFamily) -> None:
    with pytest.raises(LumeshError, match="asked the fake model to fail"):
        draw(family, "Fail please")
