"""Values that are no numbers end a job with a reason, and never as a black picture."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipelines.families.fake import FakeFamily
from pipelines.finite import NotFiniteError, find_black, refuse
from pipelines.generate import generate, generate_together
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.recipes.recipe import Lora, Recipe
from pipelines.recipes.resolving import resolve
from pipelines.stages import Progress


class Spoilt(FakeFamily):
    """The fake, with `value` in the latents of one output, or all of it black after decoding."""

    row: int | None = None
    value = np.nan
    is_black = False

    def denoise(self, recipe: Recipe, *arguments: Any, **options: Any) -> np.ndarray:
        latents = super().denoise(recipe, *arguments, **options)
        if self.row is not None:
            latents[self.row, 0, 0, 0] = self.value
        return latents

    def decode(self, recipe: Recipe, latents_BCHW: np.ndarray) -> np.ndarray:
        pixels = super().decode(recipe, np.nan_to_num(latents_BCHW, posinf=0, neginf=0))
        return pixels * np.uint8(not self.is_black)


@pytest.fixture(name="catalog", scope="module")
def load() -> Catalog:
    return load_catalog()


@pytest.fixture
def family(catalog: Catalog) -> Spoilt:
    return Spoilt(catalog.default, compile_s=0.0, step_s=0.0)


@pytest.fixture
def draw(catalog: Catalog) -> Callable[..., Recipe]:
    return lambda **fields: resolve(
        Recipe(model=catalog.default.id, prompt="A boat", **{"steps": 1, "seed": 1, **fields}), catalog
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_latents_that_are_no_numbers_are_not_even_decoded(
    family: Spoilt, draw: Callable[..., Recipe], value: float
) -> None:
    family.row, family.value = 0, value
    phases: list[str] = []

    def note(progress: Progress) -> None:
        phases.append(progress.phase)

    with pytest.raises(NotFiniteError, match=r"for 1 of 1 are not finite.* weights are damaged: .*--verify-weights"):
        generate(family, draw(), on_progress=note)
    assert "decoding" not in phases


def test_what_the_decoder_made_black_is_refused_too(family: Spoilt, draw: Callable[..., Recipe]) -> None:
    family.is_black = True
    with pytest.raises(NotFiniteError):
        generate(family, draw())


def test_a_black_picture_to_start_from_may_stay_black(tmp_path: Path, draw: Callable[..., Recipe]) -> None:
    pixels = np.zeros((1, 8, 8, 3), np.uint8)
    for colour, broken in (("black", ()), ("red", (0,))):
        Image.new("RGB", (8, 8), colour).save(tmp_path / "start.png")
        assert find_black(pixels, draw().model_copy(update={"images": (str(tmp_path / "start.png"),)})) == broken


def test_a_lora_is_named_first_with_its_scale() -> None:
    recipe = Recipe(model="demo-sdxl", prompt="A boat", loras=(Lora(ref="ink", scale=4), Lora(ref="pixel")))
    with pytest.raises(NotFiniteError, match=r"a LoRA is too strong: give it .*: ink \(4\), pixel \(1\)\.") as told:
        refuse((0,), recipe)
    assert "weights" not in told.value.advice


def test_of_a_batch_only_the_broken_outputs_are_listed(family: Spoilt, draw: Callable[..., Recipe]) -> None:
    family.row = 1
    assert generate_together(family, [draw(), draw(seed=5), draw(seed=9)]).broken == (1,)
    with pytest.raises(NotFiniteError, match="for 1 of 2 are not finite"):
        generate(family, draw(batch_size=2))
