"""Samples of trainings for the page: a still that is small, and of a video also all of it, moving."""

from pathlib import Path

import numpy as np
from PIL import Image

from pipelines.recipes.recipe import Recipe
from studio.library import training_files


def test_a_sample_of_a_video_is_shown_as_its_middle_frame_and_moves_when_asked(tmp_path: Path) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (5, 32, 1024, 3), np.uint8)
    size = training_files.show(tmp_path, 100, 0, frames, Recipe(model="x", prompt="x", fps=8))
    assert size == (768, 24)
    with Image.open(training_files.shown_file(tmp_path, 100, 0)) as still:
        assert (still.size, getattr(still, "n_frames", 1)) == (size, 1)
    with Image.open(training_files.shown_file(tmp_path, 100, 0, is_moving=True)) as moving:
        assert (moving.size, moving.n_frames, _length_ms(moving)) == (size, 5, 625)


def _length_ms(moving: Image.Image) -> int:
    total = 0
    for number in range(moving.n_frames):
        moving.seek(number)
        moving.load()
        total += moving.info["duration"]
    return total


def test_a_picture_is_shown_once(tmp_path: Path) -> None:
    training_files.show(tmp_path, 100, 0, np.zeros((16, 16, 3), np.uint8), Recipe(model="x", prompt="x"))
    assert [file.name for file in (tmp_path / "shown").iterdir()] == ["000100-0.webp"]
