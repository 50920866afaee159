"""Writes the recipe into the output file, so that whoever has a picture or video can make it again.

A PNG carries the full recipe as JSON in an iTXt chunk named `lumesh`, and again as A1111's `parameters` chunk, which
most tools and sites read. A video or animation has the JSON in its comment (video.py), a JPEG or WebP in its EXIF data
(still.py).

Not here: reading files from other programs (studio/library/foreign).
"""

from pathlib import Path

from PIL import Image, PngImagePlugin

from pipelines.files.video import ANIMATION_SUFFIXES, EXIF_SUFFIXES, read_comment
from pipelines.prompts.lora_tags import format_tag
from pipelines.recipes.recipe import Recipe

KEY = "lumesh"
GRID_KEY = "lumesh-grid"  # the axes of a grid, in its sheet

# our scheduler -> A1111's name for the same sampler
SAMPLER_NAMES = {
    "euler": "Euler",
    "euler_ancestral": "Euler a",
    "dpmpp_2m": "DPM++ 2M",
    "dpmpp_2m_sde": "DPM++ 2M SDE",
    "ddim": "DDIM",
    "lcm": "LCM",
    "tcd": "TCD",
}
# ... and its name for the spacing of noise levels that ours ends in
SCHEDULE_NAMES = {"trailing": "SGM Uniform", "karras": "Karras", "exponential": "Exponential", "beta": "Beta"}


def make_png_chunks(recipe: Recipe) -> PngImagePlugin.PngInfo:
    """Returns the text chunks to save a picture with."""
    chunks = PngImagePlugin.PngInfo()
    chunks.add_itxt(KEY, recipe.model_dump_json(by_alias=True))
    chunks.add_text("parameters", format_parameters(recipe))
    return chunks


def format_parameters(recipe: Recipe) -> str:
    """Formats the recipe as A1111's three lines: prompt with tags of its LoRAs, negative prompt, settings."""
    shape = recipe.parsed_shape
    sampler, _, spacing = (recipe.scheduler or "").rpartition("_")
    schedule = SCHEDULE_NAMES.get(spacing) if sampler in SAMPLER_NAMES else None
    sampler = sampler if schedule else recipe.scheduler or ""
    settings = {
        "Steps": recipe.steps,
        "Sampler": SAMPLER_NAMES.get(sampler, sampler),
        **({"Schedule type": schedule} if schedule else {}),
        "CFG scale": recipe.guidance_scale,
        "Seed": recipe.seed,
        "Size": f"{shape.width}x{shape.height}",
        "Model": recipe.model,
        **({} if recipe.strength is None else {"Denoising strength": recipe.strength}),
        "Version": "Lumesh",
    }
    tags = [format_tag(lora.ref, lora.scale) for lora in recipe.loras]
    lines = [" ".join((recipe.prompt, *tags))]
    if recipe.negative_prompt:
        lines.append(f"Negative prompt: {recipe.negative_prompt}")
    lines.append(", ".join(f"{name}: {value}" for name, value in settings.items()))
    return "\n".join(lines)


def read_recipe_of(file: Path) -> Recipe | None:
    """Reads the recipe in one of Lumesh's files; returns None if there is none."""
    if file.suffix in (".mp4", *ANIMATION_SUFFIXES, *EXIF_SUFFIXES):
        text = read_comment(file)
        return Recipe.model_validate_json(text) if text and text.startswith("{") else None
    with Image.open(file) as picture:
        text = picture.info.get(KEY)
    return Recipe.model_validate_json(text) if text else None
