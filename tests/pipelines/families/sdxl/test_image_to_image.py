"""A picture to start from: diffusers' own image to image, nothing compiled again, refused in words."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from pipelines.errors import RecipeError
from pipelines.generate import generate
from pipelines.models.catalog import load_catalog
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import resolve
from pipelines.runtime.programs.compiled import counter
from pipelines.stages import Progress
from tests.pipelines.schedulers import choose_scheduler

MAX_DIFFERENCE = 2
Draw = Callable[..., Recipe]
Find = Callable[[np.ndarray, np.ndarray], int]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two files of 64 x 64, soft blots of colour."""
    folder = tmp_path_factory.mktemp("pictures")
    files = [folder / f"{index}.png" for index in range(2)]
    for index, file in enumerate(files):
        blots = np.random.default_rng(index).integers(0, 255, (4, 4, 3), np.uint8)
        Image.fromarray(blots).resize((64, 64), Image.Resampling.BICUBIC).save(file)
    return [str(file) for file in files]


@pytest.fixture(scope="module")
def ask_image_to_image() -> Callable[[Path, Recipe], np.ndarray]:
    """The pictures of diffusers' own pipeline in fp32, as uint8 (B, height, width, 3)."""
    import torch
    from diffusers import StableDiffusionXLImg2ImgPipeline

    loaded: dict[Path, tuple[Any, dict[str, Any]]] = {}

    def ask(folder: Path, recipe: Recipe) -> np.ndarray:
        if folder not in loaded:
            pipeline = StableDiffusionXLImg2ImgPipeline.from_pretrained(
                folder, dtype=torch.float32, add_watermarker=False
            )
            pipeline.set_progress_bar_config(disable=True)
            loaded[folder] = (pipeline, dict(pipeline.scheduler.config))
        pipeline, scheduler_config = loaded[folder]
        pipeline.scheduler = choose_scheduler(scheduler_config, recipe.scheduler)
        made = pipeline(
            prompt=recipe.prompt,
            negative_prompt=recipe.negative_prompt or None,
            image=Image.open(recipe.images[0]),
            strength=recipe.strength,
            num_inference_steps=recipe.steps,
            guidance_scale=recipe.guidance_scale,
            num_images_per_prompt=recipe.batch_size,
            generator=[torch.Generator("cpu").manual_seed(recipe.seed + one) for one in range(recipe.batch_size)],
            output_type="np",
        ).images
        return (made * 255).round().astype(np.uint8)

    return ask


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"strength": 0.3, "steps": 10}, id="little"),
        pytest.param({"strength": 0.75, "steps": 8}, id="much"),
        pytest.param({"strength": 1.0}, id="all"),
        pytest.param({"strength": 0.3, "steps": 10, "scheduler": "dpmpp_2m"}, id="little, two-step rule"),
        pytest.param({"strength": 0.75, "steps": 8, "scheduler": "dpmpp_2m"}, id="much, two-step rule"),
        pytest.param({"strength": 0.5, "steps": 9, "scheduler": "ddim"}, id="half, no noise"),
        pytest.param({"strength": 1.0, "scheduler": "ddim"}, id="all, no noise"),
        pytest.param({"strength": 0.6, "scheduler": "euler_ancestral", "guidance_scale": 1.0}, id="noise at each step"),
        pytest.param({"strength": 0.6, "scheduler": "euler_ancestral", "batch_size": 3, "seed": 40}, id="a batch"),
    ],
)
def test_it_is_diffusers_own(  # noqa: PLR0917 - fixtures
    family: Any,
    draw_recipe: Draw,
    pictures: list[str],
    ask_image_to_image: Callable[[Path, Recipe], np.ndarray],
    find_difference: Find,
    fields: dict[str, Any],
) -> None:
    recipe = draw_recipe(images=pictures[:1], **fields)
    pixels = generate(family, recipe).pixels
    assert find_difference(pixels, ask_image_to_image(family.model.path, recipe)) <= MAX_DIFFERENCE


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
def test_a_picture_of_other_proportions_is_fitted_as_the_recipe_says(
    family: Any, draw_recipe: Draw, tmp_path: Path, fit: str
) -> None:
    picture = Image.fromarray(np.random.default_rng(9).integers(0, 255, (48, 96, 3), np.uint8))
    picture.save(tmp_path / "wide.png")
    by_hand = {
        "crop": ImageOps.fit(picture, (64, 64), Image.Resampling.LANCZOS),
        "pad": ImageOps.pad(picture, (64, 64), Image.Resampling.LANCZOS, color="black"),
        "stretch": picture.resize((64, 64), Image.Resampling.LANCZOS),
    }
    by_hand[fit].save(tmp_path / "fitted.png")
    fields = {"steps": 4, "strength": 0.5}
    made = generate(family, draw_recipe(images=[str(tmp_path / "wide.png")], fit=fit, **fields)).pixels
    assert np.array_equal(made, generate(family, draw_recipe(images=[str(tmp_path / "fitted.png")], **fields)).pixels)


def test_the_comparison_would_notice(
    family: Any, draw_recipe: Draw, pictures: list[str], find_difference: Find
) -> None:
    fields = {"images": pictures[:1], "steps": 10, "strength": 0.3}
    pixels = generate(family, draw_recipe(**fields)).pixels
    for change in ({"strength": 0.4}, {"images": pictures[1:]}, {"seed": 6}, {"prompt": "a green cactus"}):
        other = generate(family, draw_recipe(**fields | change)).pixels
        assert find_difference(pixels, other) > 5 * MAX_DIFFERENCE, change


def test_the_less_strength_the_more_of_the_picture_is_left(load_family: Callable[..., Any], tmp_path: Path) -> None:
    catalog, family = load_catalog(), load_family("demo-sdxl")
    fields = {"model": "demo-sdxl", "shape": "128x128", "steps": 10, "seed": 3}
    given = generate(family, resolve(Recipe(prompt="A red sailboat on the ocean at sunset", **fields), catalog)).pixels
    Image.fromarray(given[0]).save(tmp_path / "boat.png")
    wish = fields | {
        "prompt": "A red sailboat on the ocean at noon",
        "images": (str(tmp_path / "boat.png"),),
        "seed": 4,
    }
    distances = [
        np.abs(
            generate(family, resolve(Recipe(strength=strength, **wish), catalog)).pixels - given.astype(float)
        ).mean()
        for strength in (0.1, 0.4, 0.7)
    ]
    assert distances == sorted(distances)
    assert distances[0] < 10
    assert distances[-1] > 4 * distances[0]


def test_after_warming_no_strength_and_no_picture_builds_anything(
    family: Any, draw_recipe: Draw, pictures: list[str], tmp_path: Path
) -> None:
    for guidance_scale in (1.0, 4.0):
        generate(family, draw_recipe(guidance_scale=guidance_scale))
    built = counter.built
    Image.new("RGB", (300, 70), "red").save(tmp_path / "wide.png")
    schedulers = ("euler", "euler_ancestral", "dpmpp_2m", "ddim")
    for index, image in enumerate([*pictures, str(tmp_path / "wide.png"), pictures[0]]):
        recipe = draw_recipe(
            images=[image],
            strength=(0.01, 0.35, 0.6, 1.0)[index],
            steps=3 + 5 * index,
            scheduler=schedulers[index],
            guidance_scale=(0.0, 4.0, 7.5, 1.0)[index],
            seed=index,
        )
        outcome = generate(family, recipe)
        assert (outcome.compiles, outcome.timings.compile_s) == (0, 0.0)
    assert counter.built == built


def test_only_steps_that_are_done_are_counted(family: Any, draw_recipe: Draw, pictures: list[str]) -> None:
    recipe = draw_recipe(images=pictures[:1], steps=20, strength=0.35)
    seen: list[Progress] = []
    generate(family, recipe, on_progress=seen.append)
    steps = [(one.done, one.total) for one in seen if one.phase == "denoising"]
    assert steps[-1] == (7, 7) == (recipe.denoising_steps,) * 2


def test_a_mesh_starts_from_the_same_latents(
    load_family: Callable[..., Any],
    draw_recipe: Draw,
    assert_same_output: Callable[[Any, Any, Recipe], None],
    pictures: list[str],
) -> None:
    recipe = draw_recipe(images=pictures[:1], strength=0.5)
    assert_same_output(load_family(mesh="dp=2,sp=4"), load_family(), recipe)


def test_a_file_that_is_no_picture_is_named(family: Any, draw_recipe: Draw, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no picture")
    with pytest.raises(RecipeError, match=r"images: notes\.txt cannot be read as a picture"):
        generate(family, draw_recipe(images=[str(tmp_path / "notes.txt")]))
