"""The files of a training, in a folder of its job: pictures while it runs, the engine's state, and samples to show.

Names come from the job and the engine, never from a client.
"""

import io
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from pipelines.files.video import encode_animation, read_mp4
from pipelines.files.whole import write_whole
from pipelines.loras.files import find_namesake
from pipelines.recipes.recipe import Recipe

DATA = "data"
SAMPLES = "samples"
SHOWN = "shown"
SHOWN_SIDE_PX = 768
MADE_SUFFIXES = (".png", ".mp4")
VIDEO_NDIM = 4  # frames, height, width, colours


def read_pixels(file: Path, recipe: Recipe) -> np.ndarray:
    """Reads a sample: a picture (height, width, 3), or a video (F, height, width, 3)."""
    if file.suffix == ".mp4":
        shape = recipe.parsed_shape
        return read_mp4(file, width=shape.width, height=shape.height)
    with Image.open(file) as picture:
        return np.asarray(picture.convert("RGB"))


def list_samples(folder: Path, step: int) -> list[Path]:
    """Lists the engine's own files of the samples after a step, in the order of their prompts."""
    found = (folder / SAMPLES).glob(f"*-{step:06d}*")
    return sorted(file for file in found if file.suffix in MADE_SUFFIXES)


def show(folder: Path, step: int, number: int, pixels: np.ndarray, recipe: Recipe) -> tuple[int, int]:
    """Writes a sample for the page, of a video its middle frame and all of it; returns its width and height."""
    is_video = pixels.ndim == VIDEO_NDIM
    picture = Image.fromarray(pixels[len(pixels) // 2] if is_video else pixels)
    picture.thumbnail((SHOWN_SIDE_PX, SHOWN_SIDE_PX))
    webp = io.BytesIO()
    picture.save(webp, "WEBP", quality=88)
    if is_video:
        small = np.stack([np.asarray(Image.fromarray(frame).resize(picture.size)) for frame in pixels])
        moving = encode_animation(small, recipe, suffix=".webp")
        write_whole(shown_file(folder, step, number, is_moving=True), moving)
    write_whole(shown_file(folder, step, number), webp.getvalue())
    return picture.size


def shown_file(folder: Path, step: int, number: int, *, is_moving: bool = False) -> Path:
    """Returns where a sample for the page is, or a video's that moves."""
    return folder / SHOWN / f"{step:06d}-{number}{'.moving' if is_moving else ''}.webp"


def forget_work(folder: Path) -> None:
    """Deletes all that a training needs to go on, once it has ended well: what the page shows stays."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.name == SHOWN:
            continue
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def forget_all(folder: Path) -> None:
    """Deletes the folder of a training, with all in it."""
    shutil.rmtree(folder, ignore_errors=True)


def find_free_refs(loras_dir: Path, names: Iterable[str]) -> Iterator[str]:
    """Yields for each name the first of `name`, `name-2`, `name-3`, ... that no LoRA here has, in any letter case."""
    for name in names:
        ref, number = name, 1
        while find_namesake(ref, loras_dir) is not None:
            number += 1
            ref = f"{name}-{number}"
        yield ref
