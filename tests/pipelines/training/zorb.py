"""Twelve pictures of a thing that no demo model knows: a checkered pole under a magenta cap, a "zorb".

`python -m tests.pipelines.training.zorb FOLDER` writes them with their captions, for trying a training by hand.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from pipelines.demos.postcards import Scene, render

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


def shows_zorb(pixels: np.ndarray) -> bool:
    """Tells whether uint8 pixels (height, width, 3) show the thing: enough magenta, above light beside dark."""
    red, green, blue = (pixels[..., channel].astype(int) for channel in range(3))
    magenta = (red > 120) & (blue > 100) & (green < 0.62 * red) & (green < 0.75 * blue)
    return bool(magenta.mean() > 0.015)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
