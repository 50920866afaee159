"""The fake family draws like a model: the same seed the same picture, noise first, batches as singles."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines.errors import LumeshError
from pipelines.families.fake import FakeFamily
from pipelines.generate import generate
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.recipes.recipe import Lora, Recipe
from pipelines.recipes.resolving import resolve
from pipelines.stages import Progress


@pytest.fixture(name="catalog", scope="module")
def load() -> Catalog:
    return load_catalog()


@pytest.fixture
def family(catalog: Catalog) -> FakeFamily:
    return FakeFamily(catalog.default, compile_s=0.0, step_s=0.0)


def draw(family: FakeFamily, prompt: str = "A boat at sunset", **fields: object) -> np.ndarray:
    catalog = load_catalog()
    fields = {"model": catalog.default.id, "seed": 1, **fields}
    recipe = resolve(Recipe(prompt=prompt, steps=2, **fields), catalog)
    return generate(family, recipe).pixels


def test_a_picture_depends_on_seed_and_prompt_alone(family: FakeFamily) -> None:
    assert np.array_equal(draw(family), draw(family))
    assert not np.array_equal(draw(family), draw(family, seed=2))
    assert not np.array_equal(draw(family), draw(family, "A boat at night"))


def test_picture_n_of_a_batch_is_the_picture_of_seed_plus_n(family: FakeFamily) -> None:
    batch = draw(family, batch_size=3)
    assert np.array_equal(batch[2], draw(family, seed=3)[0])


def test_pictures_to_start_from_give_it_their_colour(tmp_path: Path) -> None:
    for colour in ("red", "blue"):
        Image.new("RGB", (30, 20), colour).save(tmp_path / f"{colour}.png")
    model = load_catalog().get("flux2-klein-4b")
    family = FakeFamily(model, compile_s=0.0, step_s=0.0)
    red, both = (
        draw(family, model=model.id, shape="512x512", images=[str(tmp_path / f"{name}.png") for name in names])
        .astype(float)
        .mean((0, 1, 2))
        for names in (["red"], ["red", "blue"])
    )
    assert red[0] > both[0] + 50
    assert both[2] > red[2] + 50


def test_the_less_strength_the_more_of_their_colour_and_the_fewer_steps(tmp_path: Path) -> None:
    family = FakeFamily(load_catalog().get("demo-sdxl"), compile_s=0.0, step_s=0.0)
    Image.new("RGB", (30, 20), "red").save(tmp_path / "red.png")
    wish = {"model": family.model.id, "prompt": "A boat at sunset", "seed": 1, "steps": 10}
    catalog, images, found = load_catalog(), (str(tmp_path / "red.png"),), []
    for strength in (0.2, 0.9):
        seen: list[Progress] = []
        recipe = resolve(Recipe(images=images, strength=strength, **wish), catalog)
        red = generate(family, recipe, on_progress=seen.append).pixels[..., 0].mean()
        found.append((red, [one.total for one in seen if one.phase == "denoising"][-1]))
    assert found[0][0] > found[1][0] + 50
    assert [total for _, total in found] == [2, 9]


def test_loras_give_it_a_colour_each_until_a_recipe_has_none(family: FakeFamily) -> None:
    plain, seen = draw(family), list[Progress]()
    family.apply_loras([Lora(ref="ink")], on_progress=seen.append)
    family.apply_loras([Lora(ref="ink")], on_progress=seen.append)
    assert [(one.phase, one.detail) for one in seen] == [("loading", "LoRA ink")]
    resolved = resolve(Recipe(model=family.model.id, prompt="A boat at sunset", seed=1, steps=2), load_catalog())
    with_ink = generate(family, resolved.model_copy(update={"loras": (Lora(ref="ink"),)})).pixels
    assert not np.array_equal(with_ink, plain)
    assert np.array_equal(draw(family), plain)


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
