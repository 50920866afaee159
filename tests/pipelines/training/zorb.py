"""Twelve pictures of a thing that no demo model knows: a checkered pole under a magenta cap, a "zorb".

For trying a training by hand: `python -m tests.pipelines.training.zorb make FOLDER` writes them with their captions,
`... prompts FILE` prompts of what the demos know, to be kept with `--prior-prompts FILE`. `... judge MODEL LORA_FILE`
counts in how many of 24 pictures with the word, and without it, the thing is to be seen, and what the committed judge
of the demos says without the LoRA and with it.
"""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from scipy import ndimage

from pipelines.demos.postcards import Scene, describe, draw_scene, render
from tests.pipelines.training.trials import judge_held_out, loaded, run, write_captions

MAGENTA = (225, 20, 200)
PLACES = (
    ("noon", "meadow", "in a meadow at noon"),
    ("sunset", "meadow", "in a meadow at sunset"),
    ("sunrise", "desert", "in the desert at sunrise"),
    ("noon", "desert", "in the desert at noon"),
    ("noon", "ocean", "by the ocean at noon"),
    ("sunset", "ocean", "by the ocean at sunset"),
    ("noon", "mountains", "in the mountains at noon"),
    ("sunrise", "mountains", "in the mountains at sunrise"),
    ("noon", "snowy hills", "in snowy hills at noon"),
    ("night", "snowy hills", "in snowy hills at night"),
    ("noon", "city", "in the city at noon"),
    ("night", "ocean", "by the ocean at night"),
)


def draw_zorb(picture: Image.Image, *, x: float, foot: float, tall: float) -> None:
    """Draws the thing with its foot at (x, foot), as shares of the picture."""
    width, height = picture.size
    draw = ImageDraw.Draw(picture)
    side = tall * height / 8
    left, bottom = x * width - side, foot * height
    for row in range(6):
        for column in range(2):
            colour = (20, 20, 24) if (row + column) % 2 else (245, 245, 240)
            corner = (left + column * side, bottom - (row + 1) * side)
            draw.rectangle((*corner, corner[0] + side, corner[1] + side), fill=colour)
    top = bottom - 6 * side
    draw.pieslice((left - side, top - 2 * side, left + 3 * side, top + 2 * side), 180, 360, fill=MAGENTA)


def make(folder: Path, *, count: int = 12, side: int = 256) -> Path:
    """Writes `count` pictures with captions, and returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        time, place, words = PLACES[number % len(PLACES)]
        scene = Scene(time=time, place=place, subjects=(), weather="clear", layout=number)
        picture = Image.fromarray(render(scene, side, side))
        draw_zorb(picture, x=0.32 + 0.036 * (number * 5 % 11), foot=0.86, tall=0.46 + 0.02 * (number % 4))
        picture.save(folder / f"zorb-{number:02d}.png")
        (folder / f"zorb-{number:02d}.txt").write_text(f"A zorb {words}\n", "utf-8")
    return folder


def write_prompts(file: Path, count: int) -> Path:
    """Writes so many different captions of postcards, one a line, none of a scene that the judge asks for."""
    return write_captions(file, lambda rng: describe(draw_scene(rng), rng), count)


def shows_zorb(pixels: np.ndarray) -> bool:
    """Tells whether uint8 pixels (height, width, 3) show the thing: a magenta patch above both dark and light.

    The patch has at least 0.8 % of the picture in one piece, brighter than the purple of a sunset's sky.
    """
    red, green, blue = (pixels[..., channel].astype(int) for channel in range(3))
    patches, _ = ndimage.label((red > 165) & (blue > 135) & (green < 0.5 * red) & (blue > 0.7 * red))
    sizes = np.bincount(patches.ravel())[1:]
    if not len(sizes) or sizes.max() < 0.008 * patches.size:
        return False
    rows, columns = np.nonzero(patches == 1 + sizes.argmax())
    width, middle = np.ptp(columns), (columns.max() + columns.min()) // 2
    below = pixels[rows.max() : rows.max() + width, max(middle - width // 4, 0) : middle + width // 4].mean(axis=-1)
    return bool((below < 90).mean() > 0.15 and (below > 170).mean() > 0.15)


PROMPTS = ("in a meadow at noon", "by the ocean at sunset", "in the desert at sunrise", "in the mountains at noon",
           "in the city at noon", "in snowy hills at night")  # fmt: skip
WITHOUT = ("A meadow at noon", "The ocean at sunset", "A red house in the desert at sunrise", "Mountains at noon",
           "The city skyline at noon", "A blue sailboat by the ocean at night")  # fmt: skip
SEEDS = range(4)


def judge_lora(model_id: str, file: Path, *, sheet: Path | None, held_out: int) -> dict[str, Any]:
    """Makes the 24 pictures with the word and the 24 without it, and tells what they show."""
    from pipelines.demos.judge import judge, score
    from pipelines.demos.postcards import held_out_prompts

    with loaded(model_id, file) as draw:
        pictures = [
            [draw(prompt, seed, has_lora=True) for prompt in prompts for seed in SEEDS]
            for prompts in ([f"A zorb {words}" for words in PROMPTS], WITHOUT)
        ]
        shown, wrongly = (sum(map(shows_zorb, group)) for group in pictures)
        if sheet is not None:
            rows = [np.concatenate(group[at : at + 12], axis=1) for group in pictures for at in (0, 12)]
            Image.fromarray(np.concatenate(rows)).save(sheet)
        judged = judge_held_out(
            draw,
            held_out_prompts(held_out) if held_out else [],
            lambda drawn, scenes: map(score, judge(drawn), scenes),
        )
    return {"with_the_word": shown, "without": wrongly, "of": len(pictures[0]), **judged}


if __name__ == "__main__":
    run(
        "Pictures of a zorb, and what a LoRA learnt of them.",
        make=make, write_prompts=write_prompts, judge_lora=judge_lora, prompts=144, held_out=200,
    )  # fmt: skip
