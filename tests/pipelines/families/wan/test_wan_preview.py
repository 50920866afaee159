"""Previews of a video are a few of its frames, and their colours are learnt from the first video."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.families.wan.preview import build_preview_program, choose_frames, guess_map, pair_frames
from pipelines.runtime.sampling.preview import FILE_NAME, LatentsToRgb, PreviewMap, write_map

CHANNELS = 6


@pytest.mark.parametrize(("frames", "chosen"), [(1, [0]), (3, [0, 1, 2]), (21, [0, 5, 10, 15, 20])])
def test_at_most_five_frames_are_shown_first_and_last_among_them(frames: int, chosen: list[int]) -> None:
    assert choose_frames(frames) == chosen


def make_video() -> tuple[np.ndarray, np.ndarray]:
    """Latents (C, T, H, W) and frames (F, 8 H, 8 W, 3) whose colours are the latents' channels 3 to 5."""
    latents = np.random.default_rng(0).uniform(-1, 1, (CHANNELS, 3, 4, 5)).astype(np.float32)
    pixels = ((latents[3:6] / 2 + 0.5) * 255).round().astype(np.uint8).transpose(1, 2, 3, 0)
    frames = np.zeros((9, 32, 40, 3), np.uint8)
    frames[::4] = pixels.repeat(8, 1).repeat(8, 2)
    return latents, frames


def draw(learnt: PreviewMap, latents: np.ndarray) -> np.ndarray:
    preview = build_preview_program(frames=latents.shape[1], cells=learnt.map.cells)
    return np.asarray(preview(learnt.map.matrix, learnt.map.bias, jnp.asarray(latents[None])))[0]


def test_colours_are_learnt_from_the_first_video_and_kept(tmp_path: Path) -> None:
    latents, frames = make_video()
    learnt = PreviewMap(None, tmp_path / "previews", guess=guess_map(CHANNELS))
    assert not learnt.is_learnt
    before = draw(learnt, latents)
    assert before.shape == (3, 8, 10, 3)
    learnt.learn(*pair_frames(latents, frames))
    expected = frames[::4, ::4, ::4].astype(int)
    assert np.abs(draw(learnt, latents) - expected).max() <= 1
    assert np.abs(before - expected).max() > 50
    again = PreviewMap(None, tmp_path / "previews", guess=guess_map(CHANNELS))
    assert again.is_learnt
    assert np.abs(draw(again, latents) - expected).max() <= 1


def test_a_models_own_map_goes_first(tmp_path: Path) -> None:
    own = LatentsToRgb(matrix=np.ones((CHANNELS, 3), np.float32), bias=np.zeros(3, np.float32))
    write_map(own, tmp_path)
    assert (tmp_path / FILE_NAME).exists()
    found = PreviewMap(tmp_path, tmp_path / "previews", guess=guess_map(CHANNELS))
    assert (found.is_learnt, found.map.cells) == (True, 1)
