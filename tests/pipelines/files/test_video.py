"""An MP4 holds the frames, plays from its first byte, and gives its recipe back."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines.files.metadata import read_recipe_of
from pipelines.files.video import VideoError, encode_animation, read_comment, read_mp4, time_frames, write_mp4
from pipelines.recipes.recipe import Recipe

FPS = 8


@pytest.fixture(scope="module")
def frames() -> np.ndarray:
    """A bright square that moves over a slope of colour (9, 64, 96, 3)."""
    y, x = np.mgrid[0:64, 0:96]
    base = np.stack([x * 2, y * 3, np.full_like(x, 90)], axis=-1).astype(np.uint8)
    moving = np.stack([base] * 9)
    for index, frame in enumerate(moving):
        frame[20:40, 8 * index : 8 * index + 20] = (240, 230, 40)
    return moving


@pytest.fixture
def file(tmp_path: Path, frames: np.ndarray, make_recipe: Callable[..., Recipe]) -> Path:
    file = tmp_path / "video.mp4"
    write_mp4(file, frames, make_recipe(model="clips", fps=FPS))
    return file


def test_frames_come_back_in_their_colours(file: Path, frames: np.ndarray) -> None:
    read = read_mp4(file, width=96, height=64)
    assert read.shape == frames.shape
    # Colour at half the resolution is part of yuv420p; the mean shows a wrong matrix or range at once.
    assert np.abs(read.astype(int) - frames).mean() < 3


def test_a_browser_can_start_before_it_has_all(file: Path) -> None:
    content = file.read_bytes()
    assert content.index(b"moov") < content.index(b"mdat")
    assert b"avc1" in content


def test_a_player_is_told_the_colours_and_does_not_guess(file: Path) -> None:
    """The colr atom that Apple's players read, as in ISO/IEC 14496-12: primaries, transfer and matrix of BT.709 (1)."""
    content = file.read_bytes()
    atom = content.index(b"colrnclx") + len(b"colrnclx")
    assert [int.from_bytes(content[atom + place : atom + place + 2]) for place in (0, 2, 4)] == [1, 1, 1]
    assert content[atom + 6] >> 7 == 0, "video range"


@pytest.mark.parametrize("suffix", [".gif", ".webp"])
@pytest.mark.parametrize("fps", [8, 16, 24, 30, 60])
def test_an_animation_lasts_as_long_as_its_video(
    tmp_path: Path, make_recipe: Callable[..., Recipe], suffix: str, fps: int
) -> None:
    """Browsers show frames of 10 ms for 100, so that a GIF of 60 frames a second would take six times as long."""
    noise = np.random.default_rng(0).integers(0, 255, (49, 8, 8, 3), np.uint8)
    (tmp_path / "video").write_bytes(encode_animation(noise, make_recipe(model="clips", fps=fps), suffix=suffix))
    durations: list[int] = []
    with Image.open(tmp_path / "video") as animation:
        for index in range(animation.n_frames):
            animation.seek(index)
            animation.load()
            durations.append(animation.info["duration"])
    assert sum(durations) == pytest.approx(1000 * 49 / fps, abs=5)
    assert min(durations) >= (20 if suffix == ".gif" else 16)
    assert len(durations) == (33 if (suffix, fps) == (".gif", 60) else 49)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 81])
def test_frames_of_a_gif_begin_when_those_of_the_video_do(count: int) -> None:
    times = time_frames(count, 60, tick_ms=10)
    start_ms = 0
    for index, duration_ms in times:
        assert start_ms == pytest.approx(1000 * index / 60, abs=5.1)
        start_ms += duration_ms
    assert start_ms == max(round(100 * count / 60) * 10, 16)


def test_any_prompt_comes_back(tmp_path: Path, frames: np.ndarray, make_recipe: Callable[..., Recipe]) -> None:
    recipe = make_recipe('a; b = c # d \\ "e"\nzweite Zeile 🌅', model="clips", fps=FPS)
    write_mp4(tmp_path / "video.mp4", frames, recipe)
    assert Recipe.model_validate_json(read_comment(tmp_path / "video.mp4") or "") == recipe


@pytest.mark.parametrize("suffix", [".gif", ".webp"])
def test_an_animation_has_all_frames_goes_on_for_ever_and_gives_its_recipe_back(
    tmp_path: Path, frames: np.ndarray, make_recipe: Callable[..., Recipe], suffix: str
) -> None:
    recipe = make_recipe(f"{'very ' * 60}long, zweite Zeile\n🌅", model="clips", fps=FPS)
    file = tmp_path / f"video{suffix}"
    file.write_bytes(encode_animation(frames, recipe, suffix=suffix))
    with Image.open(file) as animation:
        assert animation.n_frames == len(frames)
        assert animation.info["loop"] == 0
        animation.load()
        assert animation.info["duration"] == pytest.approx(1000 / FPS, abs=5), "a GIF counts hundredths of a second"
    assert read_recipe_of(file) == recipe


@pytest.mark.parametrize("suffix", ["gif", "webp"])
def test_an_animation_of_somebody_else_has_no_recipe(tmp_path: Path, suffix: str) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / f"theirs.{suffix}")
    assert read_recipe_of(tmp_path / f"theirs.{suffix}") is None


def test_what_is_no_video_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "video.mp4").write_bytes(b"nothing")
    with pytest.raises(VideoError, match="not a video"):
        read_mp4(tmp_path / "video.mp4", width=96, height=64)


def test_a_folder_that_is_not_there_is_told_as_such(
    tmp_path: Path, frames: np.ndarray, make_recipe: Callable[..., Recipe]
) -> None:
    with pytest.raises(VideoError, match="could not be written"):
        write_mp4(tmp_path / "none" / "video.mp4", frames, make_recipe(model="clips", fps=FPS))
