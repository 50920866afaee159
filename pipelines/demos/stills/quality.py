"""Measures how well a picture demo follows prompts: the committed judge scores pictures of 200 held-out prompts.

`python -m pipelines.demos.stills.quality` prints the share of right attributes and writes a contact sheet. The held-out
prompts ask for combinations of time, place, subject and colour that no training picture shows.
"""

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from safetensors.numpy import load_file

from pipelines import registry
from pipelines.demos.postcards import Scene, held_out_prompts, render
from pipelines.demos.scores import Counts, draw, tell_likeness, tell_shares
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.stages import Family, ignore_progress

SHEET_PROMPTS = (
    "A beautiful sunset over the ocean",
    "A red sailboat on the ocean at sunset",
    "A blue house in the snow at night",
    "A white lighthouse by the sea at night",
    "A purple hot-air balloon over the mountains at sunrise",
    "A green cactus in the desert at noon with clouds",
    "Orange pine trees in a meadow at sunrise",
    "The city skyline at night",
    "A yellow sailboat on the left and a red lighthouse on the right, ocean, noon",
    "A green house and a purple balloon in the meadow at sunset",
    "A portrait of an astronaut riding a dragon",
    "snowy hills at sunrise under clouds",
)
COLUMNS = 4
PSNR_PICTURES = 40
LIKENESS_OF = 20  # outputs compared with and without a step cache
CAPTION_PX = 22


def measure(
    family: Family, catalog: Catalog, *, shape: str, steps: int | None, count: int, step_cache: str | None = None
) -> Counter[tuple[str, bool]]:
    """Counts (attribute, is right) over the held-out prompts."""
    from pipelines.demos.judge import judge, score

    asked = held_out_prompts(count)
    pictures = [
        draw(family, catalog, prompt, shape=shape, steps=steps, seed=index, step_cache=step_cache)
        for index, (prompt, _) in enumerate(asked)
    ]
    counts: Counts = Counter()
    for verdict, (_, scene) in zip(judge(pictures), asked, strict=True):
        counts.update((_group(name, scene), right) for name, right in score(verdict, scene).items())
    return counts


def measure_autoencoder(folder: Path) -> float:
    """Returns the PSNR in dB of the stored autoencoder on held-out postcards at 256x256."""
    import jax.numpy as jnp  # after registry.load, which chooses the backend before jax is imported
    from diffusers import AutoencoderKL

    from pipelines.demos.stills.architecture import trace_and_initialise
    from pipelines.demos.stills.autoencoder import measure_psnr

    config = json.loads((folder / "vae" / "config.json").read_text("utf-8"))
    vae, initial = trace_and_initialise(AutoencoderKL.from_config, config, seed=0)
    stored = load_file(folder / "vae" / "diffusion_pytorch_model.safetensors")
    parameters = {name: jnp.asarray(value, jnp.float32) for name, value in stored.items() if name in initial}
    pictures = np.stack([render(scene, 256, 256) for _, scene in held_out_prompts(PSNR_PICTURES)])
    return measure_psnr(vae, parameters, pictures)


def _group(attribute: str, scene: Scene) -> str:
    """Groups attributes for counting: `sailboat colour` and `house colour` together, but two subjects separately."""
    kind = attribute.split()[-1]
    return f"{kind}, two subjects" if len(scene.subjects) == 2 and kind in ("present", "colour") else kind


def draw_sheet(family: Family, catalog: Catalog, *, shape: str, steps: int | None) -> Image.Image:
    """Draws the contact sheet for the page on the demo models: each prompt with seed 7."""
    font = ImageFont.load_default(12)
    cells = []
    for prompt in SHEET_PROMPTS:
        picture = Image.fromarray(draw(family, catalog, prompt, shape=shape, steps=steps, seed=7))
        cell = Image.new("RGB", (picture.width, picture.height + CAPTION_PX), "white")
        cell.paste(picture)
        text = prompt if len(prompt) < 44 else prompt[:42] + "..."
        ImageDraw.Draw(cell).text((4, picture.height + 4), text, "black", font)
        cells.append(cell)
    width, height = cells[0].size
    rows = -(-len(cells) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * width, rows * height), "white")
    for index, cell in enumerate(cells):
        sheet.paste(cell, (index % COLUMNS * width, index // COLUMNS * height))
    return sheet


def main() -> None:
    parser = argparse.ArgumentParser(description="How well a picture demo follows prompts.")
    parser.add_argument("--model", default="demo-sdxl", help="demo-sdxl or demo-flux2")
    parser.add_argument("--models-dir", type=Path, default=None, help="measure a folder of this directory instead")
    parser.add_argument("--shape", default="256x256")
    parser.add_argument("--steps", type=int, default=None, help="as the model's default")
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--step-cache", default=None, help="mild, strong or numbers; also compares with none")
    parser.add_argument("--sheet", type=Path, default=None, help="where to write the contact sheet")
    options = parser.parse_args()
    catalog = load_catalog(options.models_dir)
    with tempfile.TemporaryDirectory() as cache:
        family = registry.load(
            catalog.get(options.model), mesh="dp=1", cache_dir=Path(cache), on_progress=ignore_progress
        )
        if options.sheet:
            sheet = draw_sheet(family, catalog, shape=options.shape, steps=options.steps)
            sheet.save(options.sheet)
        asked = {"shape": options.shape, "steps": options.steps, "step_cache": options.step_cache}
        counts = measure(family, catalog, count=options.prompts, **asked)
        likeness = []
        if options.step_cache is not None:
            prompts = [prompt for prompt, _ in held_out_prompts(LIKENESS_OF)]
            likeness = [tell_likeness(family, catalog, prompts, **asked)]
        folder = catalog.get(options.model).path
        decibels = None if folder is None else measure_autoencoder(folder)
    lines = tell_shares(counts)
    lines += likeness
    if decibels is not None:
        lines.append(f"{'autoencoder':<24}{decibels:7.1f} dB")
    print("\n".join(lines))  # noqa: T201 - the result


if __name__ == "__main__":
    main()
