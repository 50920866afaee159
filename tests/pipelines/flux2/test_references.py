"""Reference pictures: diffusers' own edits, fixed sizes, nothing compiled twice."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipelines.catalog import Shape
from pipelines.errors import RecipeError
from pipelines.flux2.references import choose_size
from pipelines.generate import generate
from pipelines.recipe import Recipe
from pipelines.runtime.compiled import counter

MAX_DIFFERENCE = 2
SHAPES = tuple(map(Shape.parse, ("1024x1024", "1280x768", "768x1280", "1440x1440", "512x512")))


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


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((3000, 3000), "1024x1024"),
        ((600, 620), "512x512"),
        ((100, 90), "512x512"),
        ((1920, 1080), "1280x768"),
        ((1080, 2400), "768x1280"),
    ],
)
def test_a_picture_takes_the_nearest_proportions_it_fills(size: tuple[int, int], expected: str) -> None:
    assert choose_size(Image.new("RGB", size), SHAPES) == Shape.parse(expected)
