"""Measures how well the video demo follows prompts: the committed judges score clips of 100 held-out prompts.

`python -m pipelines.demos.demo_wan.quality` prints the share of right attributes and motions. `--sheet` writes a
contact sheet, a row of frames for each prompt, and `--gif` the same clips moving side by side. The held-out prompts ask
for combinations that no training clip shows.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from safetensors.numpy import load_file

from pipelines import registry
from pipelines.demos.motions import held_out_clips, render_clip
from pipelines.demos.scores import Counts, draw, tell_likeness, tell_shares
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.stages import Family, ignore_progress

SHEET_PROMPTS = (
    "A red sailboat sails to the left on the ocean at sunset",
    "A white sailboat sails to the right on the ocean at noon",
    "The sun sets over the ocean",
    "The sun rises over the desert",
    "A blue hot-air balloon rises over the mountains at sunrise",
    "A yellow hot-air balloon drifts to the right over a meadow at noon",
    "Snow falls on the snowy hills at night",
    "The lights of the city blink at night",
)
SHEET_FRAMES = (0, 4, 8, 12, 16)
SHEET_SEED = 7
LIKENESS_OF = 20  # outputs compared with and without a step cache
CAPTION_PX = 20
GIF_COLUMNS = 4
GIF_COLOURS = 64
PSNR_CLIPS = 20
MOTION = "motion"


def measure(
    family: Family, catalog: Catalog, *, shape: str, steps: int | None, count: int, step_cache: str | None = None
) -> Counter[tuple[str, bool]]:
    """Counts (attribute or `motion`, is right) over the held-out prompts."""
    from pipelines.demos.motions.judge import score_clips

    asked = held_out_clips(count)
    videos = [
        draw(family, catalog, prompt, shape=shape, steps=steps, seed=index, step_cache=step_cache)
        for index, (prompt, _) in enumerate(asked)
    ]
    counts: Counts = Counter()
    for verdict in score_clips(videos, [clip for _, clip in asked]):
        counts.update((name.split()[-1], right) for name, right in verdict.items())
    return counts


def draw_sheet(videos: Sequence[np.ndarray]) -> Image.Image:
    """Draws the contact sheet for the page on the demo models: five frames of each of SHEET_PROMPTS."""
    rows = []
    for video, prompt in zip(videos, SHEET_PROMPTS, strict=True):
        strip = Image.fromarray(np.concatenate([video[index] for index in SHEET_FRAMES], axis=1))
        row = Image.new("RGB", (strip.width, strip.height + CAPTION_PX), "white")
        row.paste(strip)
        ImageDraw.Draw(row).text((4, strip.height + 3), prompt, "black", ImageFont.load_default(12))
        rows.append(row)
    sheet = Image.new("RGB", (rows[0].width, sum(row.height for row in rows)), "white")
    for index, row in enumerate(rows):
        sheet.paste(row, (0, index * row.height))
    return sheet


def write_gif(videos: Sequence[np.ndarray], file: Path, *, fps: int) -> None:
    """Writes all clips side by side, GIF_COLUMNS in a row; all frames share the middle one's palette."""
    rows = [np.concatenate(videos[at : at + GIF_COLUMNS], axis=2) for at in range(0, len(videos), GIF_COLUMNS)]
    pictures = [Image.fromarray(frame) for frame in np.concatenate(rows, axis=1)]
    palette = pictures[len(pictures) // 2].quantize(GIF_COLOURS)
    frames = [picture.quantize(palette=palette) for picture in pictures]
    frames[0].save(file, save_all=True, append_images=frames[1:], duration=1000 // fps, loop=0)


def measure_autoencoder(folder: Path) -> float:
    """Returns the PSNR in dB of the stored autoencoder on held-out clips at 128x128."""
    import jax.numpy as jnp  # after registry.load, which chooses the backend before jax is imported

    from pipelines.demos.demo_wan.architecture import build_vae
    from pipelines.demos.demo_wan.autoencoder import SIDE, measure_psnr
    from pipelines.demos.stills.architecture import trace_and_initialise

    vae, _ = trace_and_initialise(build_vae, seed=0)
    stored = load_file(folder / "vae" / "diffusion_pytorch_model.safetensors")
    parameters = {name: jnp.asarray(value, jnp.float32) for name, value in stored.items()}
    clips = np.stack([render_clip(clip, SIDE, SIDE) for _, clip in held_out_clips(PSNR_CLIPS)])
    return measure_psnr(vae, parameters, clips)


def main() -> None:
    parser = argparse.ArgumentParser(description="How well the video demo follows prompts.")
    parser.add_argument("--models-dir", type=Path, default=None, help="measure a folder of this directory instead")
    parser.add_argument("--model", default="demo-wan")
    parser.add_argument("--shape", default="128x128x17")
    parser.add_argument("--steps", type=int, default=None, help="as the model's default")
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--step-cache", default=None, help="mild, strong or numbers; also compares with none")
    parser.add_argument("--sheet", type=Path, default=None, help="where to write the contact sheet")
    parser.add_argument("--gif", type=Path, default=None, help="where to write the moving contact sheet")
    options = parser.parse_args()
    catalog = load_catalog(options.models_dir)
    model = catalog.get(options.model)
    with tempfile.TemporaryDirectory() as cache:
        family = registry.load(model, mesh="dp=1", cache_dir=Path(cache), on_progress=ignore_progress)
        if options.sheet or options.gif:
            videos = [
                draw(family, catalog, prompt, shape=options.shape, steps=options.steps, seed=SHEET_SEED)
                for prompt in SHEET_PROMPTS
            ]
            if options.sheet:
                draw_sheet(videos).save(options.sheet)
            if options.gif:
                write_gif(videos, options.gif, fps=model.fps or 1)
        asked = {"shape": options.shape, "steps": options.steps, "step_cache": options.step_cache}
        counts = measure(family, catalog, count=options.prompts, **asked)
        likeness = []
        if options.step_cache is not None:
            prompts = [prompt for prompt, _ in held_out_clips(LIKENESS_OF)]
            likeness = [tell_likeness(family, catalog, prompts, **asked)]
        decibels = None if model.path is None else measure_autoencoder(model.path)
    still = Counter({key: number for key, number in counts.items() if key[0] != MOTION})
    motion = Counter({key: number for key, number in counts.items() if key[0] == MOTION})
    lines = [*tell_shares(motion)[:1], *tell_shares(still)]
    lines += likeness
    if decibels is not None:
        lines.append(f"{'autoencoder':<24}{decibels:7.1f} dB")
    print("\n".join(lines))  # noqa: T201 - the result


if __name__ == "__main__":
    main()
