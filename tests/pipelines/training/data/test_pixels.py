"""What a model learns are the pixels that people see, at the bucket's size."""

from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

from pipelines.files.video import write_mp4
from pipelines.recipes.recipe import Recipe
from pipelines.training.data.cuts import Bucket, cover, cut_square
from pipelines.training.data.examples import Example
from pipelines.training.data.pixels import read_pixels
from tests.pipelines.training.data.pictures import encode, make_picture, read_well


def read_one(tmp_path: Path, content: bytes, suffix: str = ".png", *, videos: bool = False) -> Example:
    (tmp_path / f"a{suffix}").write_bytes(content)
    return read_well(tmp_path, trigger="sks", videos=videos).examples[0]


def show(example: Example, bucket: Bucket, **options: bool) -> np.ndarray:
    return read_pixels(example, cover(example.width, example.height, bucket), **options)


@pytest.mark.parametrize(
    ("picture", "kind", "expected"),
    [
        (Image.new("RGBA", (8, 8), (0, 255, 0, 0)), "PNG", (255, 255, 255)),
        (Image.new("LA", (8, 8), (0, 51)), "PNG", (204, 204, 204)),
        (Image.fromarray(np.full((8, 8), 0x8042, np.uint16)), "PNG", (128, 128, 128)),
        (Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "TIFF", (255, 0, 0)),
        (Image.new("L", (8, 8), 77), "PNG", (77, 77, 77)),
        (Image.new("1", (8, 8), 1), "PNG", (255, 255, 255)),
        (Image.new("RGB", (8, 8), (9, 99, 199)).convert("P", palette=Image.Palette.ADAPTIVE), "PNG", (9, 99, 199)),
    ],
)
def test_every_kind_of_pixel_becomes_what_was_seen(
    tmp_path: Path, picture: Image.Image, kind: str, expected: tuple[int, ...]
) -> None:
    pixels = show(read_one(tmp_path, encode(picture, kind), f".{kind.lower()}"), Bucket(8, 8))
    assert pixels.shape == (1, 8, 8, 3) and pixels.dtype == np.uint8
    assert np.abs(pixels.astype(int) - expected).max() == 0


def test_a_turned_picture_is_upright(tmp_path: Path) -> None:
    picture, exif = make_picture(24, 16), Image.Exif()
    exif[ExifTags.Base.Orientation] = 8
    example = read_one(tmp_path, encode(picture, exif=exif))
    expected = np.asarray(picture.transpose(Image.Transpose.ROTATE_90))
    assert np.array_equal(show(example, Bucket(16, 24))[0], expected)


def test_a_picture_is_scaled_to_cover_and_cut_in_the_middle_or_where_it_is_asked(tmp_path: Path) -> None:
    picture = make_picture(60, 20)
    example = read_one(tmp_path, encode(picture))
    scaled = picture.resize((30, 10), Image.Resampling.LANCZOS)
    assert np.array_equal(show(example, Bucket(10, 10))[0], np.asarray(scaled.crop((10, 0, 20, 10))))
    assert np.array_equal(show(example, Bucket(10, 10)), show(example, Bucket(10, 10), flip=True)[:, :, ::-1])
    cut = cover(60, 20, Bucket(10, 10))
    moved = {cut.move(crop, content=example.content).left for crop in range(300)}
    assert moved == set(range(21)) and cut.move(None, content=example.content) == cut
    at = cut.move(7, content=example.content)
    assert np.array_equal(read_pixels(example, at)[0], np.asarray(scaled.crop((at.left, 0, at.left + 10, 10))))


def test_sdxl_is_told_of_the_original_and_where_it_was_cut() -> None:
    cut = cover(600, 400, Bucket(128, 128))
    assert (cut.scaled_width, cut.scaled_height) == (192, 128)
    assert cut.list_time_ids() == (400, 600, 0, 32, 128, 128)
    moved = next(one for crop in range(9) if (one := cut.move(crop, content="x")).left != 32)
    assert moved.list_time_ids(flip=True)[3] == 64 - moved.left


@pytest.mark.parametrize("size", [(70, 41), (41, 70), (33, 33), (20, 15), (32, 64), (35, 32)])
def test_a_square_is_cut_as_the_reference_scripts_do(tmp_path: Path, size: tuple[int, int]) -> None:
    """torchvision: the longer side is int(size * long / short), the offset int(round(spare / 2)), half to even."""
    picture = make_picture(*size)
    example = read_one(tmp_path, encode(picture))
    cut = cut_square(*size, 32)
    found = Image.fromarray(read_pixels(example, cut)[0])
    short, long = min(size), max(size)
    sides = (32, int(32 * long / short)) if size[0] <= size[1] else (int(32 * long / short), 32)
    resized = picture if picture.size == sides else picture.resize(sides, Image.Resampling.BILINEAR)
    left, top = (int(round((side - 32) / 2.0)) for side in sides)
    assert np.array_equal(np.asarray(found), np.asarray(resized.crop((left, top, left + 32, top + 32))))


def test_clips_are_read_at_the_models_frame_rate(tmp_path: Path) -> None:
    frames = np.repeat((np.arange(12) * 20).astype(np.uint8), 32 * 16 * 3).reshape(12, 16, 32, 3)
    write_mp4(tmp_path / "a.mp4", frames, Recipe(model="x", prompt="x", fps=24))
    stills = [Image.new("RGB", (32, 16), (at * 60,) * 3) for at in range(4)]
    options = {"save_all": True, "append_images": stills[1:], "duration": [250, 500, 250, 250]}
    (tmp_path / "b.gif").write_bytes(encode(stills[0], "GIF", **options))
    mp4, gif = read_well(tmp_path, trigger="sks", videos=True).examples
    pixels = read_pixels(mp4, cover(32, 16, Bucket(16, 16, 5), fps=12))
    assert pixels.shape == (5, 16, 16, 3)
    assert np.abs(pixels.mean(axis=(1, 2, 3)) - np.arange(5) * 40).max() < 22  # a frame's difference is 20
    assert np.all(np.diff(pixels.mean(axis=(1, 2, 3))) > 30)
    pixels = read_pixels(gif, cover(32, 16, Bucket(16, 16, 5), fps=4))
    assert pixels.mean(axis=(1, 2, 3)).tolist() == [0, 60, 60, 120, 180]
    still = read_pixels(mp4, cover(32, 16, Bucket(16, 16, 1), fps=12), flip=True)
    assert still.shape == (1, 16, 16, 3)
