"""Reference pictures: diffusers' own edits, fixed sizes, nothing compiled twice."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipelines.errors import RecipeError
from pipelines.families.flux2.references import read_references
from pipelines.generate import generate
from pipelines.pictures.fitting import Fit
from pipelines.pictures.references import References
from pipelines.recipes.recipe import Recipe
from pipelines.runtime.programs.compiled import counter
from pipelines.stages import Progress

MAX_DIFFERENCE = 2


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Five files of 64 x 64 noise."""
    folder = tmp_path_factory.mktemp("pictures")
    files = [folder / f"{index}.png" for index in range(5)]
    for index, file in enumerate(files):
        noise = np.random.default_rng(index).integers(0, 255, (8, 8, 3), np.uint8)
        Image.fromarray(noise).resize((64, 64), Image.Resampling.BILINEAR).save(file)
    return [str(file) for file in files]


@pytest.mark.parametrize(
    ("model", "count"), [pytest.param("klein", 1, id="one, guided"), pytest.param("dev", 3, id="three")]
)
def test_an_edit_is_diffusers_own(  # noqa: PLR0917 - fixtures
    load_flux2: Callable[..., Any],
    draw_recipe: Callable[..., Recipe],
    ask_diffusers: Callable[..., np.ndarray],
    find_difference: Callable[[np.ndarray, np.ndarray], int],
    pictures: list[str],
    model: str,
    count: int,
) -> None:
    recipe, other = (draw_recipe(model=model, images=pictures[start : count + start]) for start in (0, 1))
    pixels, others = (generate(load_flux2(model), one).pixels for one in (recipe, other))
    expected = ask_diffusers(recipe, image=[Image.open(file) for file in recipe.images])
    assert find_difference(pixels, expected) <= MAX_DIFFERENCE
    assert find_difference(pixels, others) > 5 * MAX_DIFFERENCE


def test_pictures_are_fitted_as_the_recipe_says(load_flux2: Callable[..., Any], tmp_path: Path) -> None:
    Image.new("RGB", (128, 64), "red").save(tmp_path / "wide.png")
    model = load_flux2().model
    files = [str(tmp_path / "wide.png")]
    (plain, _), (padded, _) = (read_references(files, model, fit) for fit in (None, Fit.PAD))
    assert plain is not None and plain[0, 0].min() == 1
    assert padded is not None and (padded[0, 0].min(), padded[0, 0].max()) == (-1, 1)


def test_after_warming_for_so_many_pictures_their_recipes_build_nothing(
    load_flux2: Callable[..., Any], draw_recipe: Callable[..., Recipe], pictures: list[str]
) -> None:
    family, shape = load_flux2(), draw_recipe().parsed_shape
    references = References(count=2, size=shape)
    assert family.shape_state(shape, references) != "warm"
    seen: list[Progress] = []
    warm_s = family.warm(shape, batch_size=1, uses_cfg=True, references=references, on_progress=seen.append)
    assert warm_s > 0
    assert {progress.detail.removesuffix(" from the cache") for progress in seen} == {"64x64 with 2 of 64x64"}
    assert family.shape_state(shape, references) == "warm"
    built = counter.built
    for index, scale in enumerate((0.0, 1.0, 4.0, 20.0)):
        images = [pictures[index], pictures[index + 1]]
        recipe = draw_recipe(
            images=images, seed=index, steps=index + 1, guidance_scale=scale, prompt=f"make it {index}"
        )
        outcome = generate(family, recipe)
        assert (outcome.compiles, outcome.timings.compile_s) == (0, 0.0)
    assert counter.built == built


def test_compiling_for_pictures_comes_before_denoising_and_is_not_counted_as_steps(
    load_flux2: Callable[..., Any], draw_recipe: Callable[..., Recipe], pictures: list[str]
) -> None:
    seen: list[str] = []
    outcome = generate(load_flux2(), draw_recipe(images=pictures[:3]), on_progress=lambda one: seen.append(one.phase))
    assert outcome.timings.compile_s > 0
    phases = [phase for phase, _ in itertools.groupby(seen)]
    assert (phases[0], phases[-2:]) == ("compiling", ["denoising", "decoding"])
    assert set(phases[:-2]) == {"compiling", "encoding"}  # the prompt is read while the rest compiles


def test_a_number_of_pictures_is_compiled_once(
    load_flux2: Callable[..., Any], draw_recipe: Callable[..., Recipe], pictures: list[str]
) -> None:
    family = load_flux2()
    generate(family, draw_recipe(images=pictures[:1]))
    built = counter.built
    for index in range(1, 5):
        recipe = draw_recipe(images=[pictures[index]], seed=index, steps=index, prompt=f"make it {index}")
        assert generate(family, recipe).compiles == 0
    assert counter.built == built


def test_more_pictures_than_the_model_takes_are_refused(
    draw_recipe: Callable[..., Recipe], pictures: list[str]
) -> None:
    with pytest.raises(RecipeError, match="5 given; klein takes at most 4 images"):
        draw_recipe(images=pictures)


def test_a_file_that_is_no_picture_is_named(
    load_flux2: Callable[..., Any], draw_recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("no picture")
    for name in ("notes.txt", "missing.png"):
        with pytest.raises(RecipeError, match=f"images: {name} cannot be read as a picture"):
            generate(load_flux2(), draw_recipe(images=[str(tmp_path / name)]))
