"""Files are whole, named by us, and carry the recipe of exactly their picture."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines.files.metadata import format_parameters, read_recipe_of
from pipelines.files.video import read_mp4, write_mp4
from pipelines.recipes.recipe import Recipe
from studio.library.files import THUMB_SIDE_PX, forget_torn, poster_of, save_each, save_outputs


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 255, (2, 512, 512, 3), dtype=np.uint8)


def test_pixels_and_recipe_come_back_from_the_file(
    tmp_path: Path, pixels: np.ndarray, make_recipe: Callable[..., Recipe]
) -> None:
    recipe = make_recipe("Ein Häuschen am Meer 🌅", negative_prompt="fog", batch_size=2)
    saved = save_outputs(tmp_path, "abc", pixels, recipe)
    for number, file in enumerate(saved):
        with Image.open(tmp_path / file.file) as picture:
            assert np.array_equal(np.asarray(picture), pixels[number])
            assert picture.text["parameters"].startswith("Ein Häuschen am Meer 🌅\nNegative prompt: fog\nSteps: 2, ")
        expected = recipe.model_copy(update={"seed": recipe.seed + number, "batch_size": 1})
        assert read_recipe_of(tmp_path / file.file) == expected
        assert file.recipe == expected


def test_names_hold_the_day_the_job_and_the_number(
    tmp_path: Path, pixels: np.ndarray, make_recipe: Callable[..., Recipe]
) -> None:
    files = [Path(saved.file) for saved in save_outputs(tmp_path, "abc", pixels, make_recipe())]
    assert [file.name for file in files] == ["abc-0.png", "abc-1.png"]
    assert all(len(file.parent.name.split("-")) == 3 for file in files)


def test_thumbnails_are_small(tmp_path: Path, pixels: np.ndarray, make_recipe: Callable[..., Recipe]) -> None:
    saved = save_outputs(tmp_path, "abc", pixels, make_recipe())[0]
    with Image.open(tmp_path / saved.thumb) as thumb:
        assert (thumb.format, max(thumb.size)) == ("WEBP", THUMB_SIDE_PX)


def test_a_picture_without_recipe_has_none(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "plain.png")
    assert read_recipe_of(tmp_path / "plain.png") is None


def test_parameters_read_like_a1111s(make_recipe: Callable[..., Recipe]) -> None:
    fields = {"negative_prompt": "", "steps": 12, "guidance_scale": 4.0, "scheduler": "euler_ancestral"}
    recipe = make_recipe("A sailboat", model="demo-sdxl", **fields)
    size = recipe.parsed_shape
    assert format_parameters(recipe) == (
        f"A sailboat\nSteps: 12, Sampler: Euler a, CFG scale: 4.0, Seed: 7, Size: {size.width}x{size.height}, "
        f"Model: {recipe.model}, Version: Lumesh"
    )


def test_a_video_has_its_recipe_a_poster_and_a_thumbnail(tmp_path: Path, make_recipe: Callable[..., Recipe]) -> None:
    frames = np.stack([np.full((64, 512, 3), shade, np.uint8) for shade in (0, 128, 255)])
    recipe = make_recipe("Ein Boot; fährt = weit # 🌅\nzweite Zeile", model="clips", fps=8)
    (saved,) = save_outputs(tmp_path, "abc", frames[None], recipe)
    assert (saved.kind, saved.width, saved.height, saved.frames) == ("video", 512, 64, 3)
    assert read_recipe_of(tmp_path / saved.file) == recipe.of_picture(0)
    for name, side in ((poster_of(saved.file), 512), (saved.thumb, THUMB_SIDE_PX)):
        with Image.open(tmp_path / name) as still:
            assert (still.format, max(still.size)) == ("WEBP", side)
            assert abs(int(np.asarray(still)[10, 10, 0]) - 128) <= 2
    assert sorted(file.suffix for file in tmp_path.rglob("*") if file.is_file()) == [".mp4", ".webp", ".webp"]


def test_a_video_that_is_a_file_already_keeps_its_very_frames(
    tmp_path: Path, make_recipe: Callable[..., Recipe]
) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (5, 32, 48, 3), np.uint8)
    sample, recipe = tmp_path / "sample.mp4", make_recipe("Ein Boot", model="clips", fps=8)
    write_mp4(sample, frames, make_recipe(model="clips", fps=8))
    read = read_mp4(sample, width=48, height=32)
    (saved,) = save_each(tmp_path / "outputs", "abc", [(read, recipe)], videos=[sample])
    assert np.array_equal(read_mp4(tmp_path / "outputs" / saved.file, width=48, height=32), read)
    assert read_recipe_of(tmp_path / "outputs" / saved.file) == recipe


def list_files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.rglob("*") if file.is_file())


def test_a_disk_that_fills_up_keeps_none_of_a_batch(
    tmp_path: Path, pixels: np.ndarray, make_recipe: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = np.concatenate([pixels, pixels])
    written = list[int]()
    fsync = os.fsync

    def fill_up(file: int) -> None:
        written.append(file)
        if len(written) == 2 * len(batch):  # a thumbnail each; the last one
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(file)

    monkeypatch.setattr(os, "fsync", fill_up)
    with pytest.raises(OSError, match="No space"):
        save_outputs(tmp_path, "abc", batch, make_recipe())
    assert len(written) == 2 * len(batch)
    assert list_files(tmp_path) == []


def test_what_a_killed_worker_was_writing_goes(
    tmp_path: Path, pixels: np.ndarray, make_recipe: Callable[..., Recipe]
) -> None:
    save_outputs(tmp_path, "abc", pixels, make_recipe())
    kept = list_files(tmp_path)
    (next(tmp_path.iterdir()) / ".abd-0.part.png").write_bytes(b"half")
    forget_torn(tmp_path)
    assert list_files(tmp_path) == kept != []


def test_what_another_worker_is_writing_stays(tmp_path: Path) -> None:
    (tmp_path / "day").mkdir()
    names = [".abc-0.part.png", ".abc-0.thumb.part.webp", ".abd-0.part.png"]
    for name in names:
        (tmp_path / "day" / name).write_bytes(b"half")
    forget_torn(tmp_path, writing={"abc"})
    assert sorted(part.name for part in (tmp_path / "day").iterdir()) == names[:2]
