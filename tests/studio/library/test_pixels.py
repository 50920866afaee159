"""Two outputs are the same picture, or differ by a number that means something."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from studio.library.pixels import compare
from studio.library.records import Output
from studio.settings import Settings


def repaint(file: Path, shade: int) -> None:
    with Image.open(file) as picture:
        Image.fromarray(np.full((picture.height, picture.width, 3), shade, np.uint8)).save(file)


@pytest.mark.parametrize("model", ["demo-sdxl", "clips"])
def test_equal_pixels_are_identical(settings: Settings, add_output: Callable[..., Output], model: str) -> None:
    one, other = add_output(has_files=True, model=model), add_output(has_files=True, model=model)
    likeness = compare(settings.outputs_dir, one, other)
    assert (likeness.same_size, likeness.identical, likeness.psnr_db) == (True, True, None)


def test_a_difference_has_its_psnr(settings: Settings, add_output: Callable[..., Output]) -> None:
    one, other = add_output(has_files=True), add_output(has_files=True)
    for shade, psnr_db in ((1, 48.13), (255, 0.0)):
        repaint(settings.outputs_dir / other.file, shade)
        likeness = compare(settings.outputs_dir, one, other)
        assert (likeness.identical, likeness.psnr_db) == (False, psnr_db)


def test_other_sizes_are_not_compared(settings: Settings, add_output: Callable[..., Output]) -> None:
    picture, film = add_output(has_files=True), add_output(has_files=True, model="clips")
    likeness = compare(settings.outputs_dir, picture, film)
    assert (likeness.same_size, likeness.identical, likeness.psnr_db) == (False, False, None)
