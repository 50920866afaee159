"""Clips move one thing by the promised way, keep it in the picture, and leave all else to the pixel.

Not here: whether they are pretty (look at them), whether they can be read back (test_judge.py).
"""

import numpy as np
import pytest

from pipelines.demos.motions import MOTIONS, Clip, render_clip
from pipelines.demos.motions.choice import draw_clip_of

MOVERS = ("sails left", "sails right", "balloon rises", "balloon drifts left", "balloon drifts right")
BOAT_WIDTH = 0.47  # of the shorter side


def clip_of(motion: str, seed: int = 0) -> Clip:
    return draw_clip_of(motion, np.random.default_rng(seed))


def find_changes(frames: np.ndarray) -> np.ndarray:
    return (frames != frames[0]).any(axis=(0, 3))


@pytest.mark.parametrize("motion", MOTIONS)
def test_a_clip_has_its_size_and_is_always_alike(motion: str) -> None:
    frames = render_clip(clip_of(motion), 160, 96)
    assert frames.shape == (17, 96, 160, 3)
    assert frames.dtype == np.uint8
    assert np.array_equal(frames, render_clip(clip_of(motion), 160, 96))


@pytest.mark.parametrize("motion", MOVERS)
@pytest.mark.parametrize(("width", "height"), [(128, 128), (160, 96)])
def test_a_mover_stays_in_the_picture_and_the_rest_stands_still(motion: str, width: int, height: int) -> None:
    for seed in range(2):
        changes = find_changes(render_clip(clip_of(motion, seed), width, height))
        assert 0.1 < changes.mean() < 0.45
        assert not changes[[0, -1]].any()
        assert not changes[:, [0, -1]].any()


@pytest.mark.parametrize(("width", "height"), [(128, 128), (160, 96)])
def test_a_boat_crosses_two_fifths_of_the_picture(width: int, height: int) -> None:
    swept = find_changes(render_clip(clip_of("sails left"), width, height)).any(axis=0).sum()
    assert 0.35 < (swept - BOAT_WIDTH * min(width, height)) / width < 0.5


def test_movers_keep_an_even_pace() -> None:
    frames = render_clip(clip_of("sails right"), 128, 128).astype(int)
    steps = np.abs(np.diff(frames, axis=0)).mean(axis=(1, 2, 3))
    assert steps.min() > 0.5 * steps.max()


@pytest.mark.parametrize(("motion", "brighter"), [("sun sets", 0), ("sun rises", -1)])
def test_the_whole_picture_is_brighter_with_the_sun_high(motion: str, brighter: int) -> None:
    brightness = render_clip(clip_of(motion), 128, 128).mean(axis=(1, 2, 3))
    assert abs(brightness[brighter] - brightness.max()) < 0.05 * brightness.max()
    assert brightness.max() > 1.04 * brightness.min()


def test_as_much_snow_comes_in_as_leaves() -> None:
    brightness = render_clip(clip_of("snow falls"), 128, 128).mean(axis=(1, 2, 3))
    assert np.ptp(brightness) < 0.02 * brightness.mean()


def test_lamps_are_lit_dark_and_lit_again_within_eight_frames() -> None:
    frames = render_clip(clip_of("lights blink"), 128, 128)
    assert np.array_equal(frames[0], frames[8])
    assert np.array_equal(frames[0], frames[16])
    assert frames[4].mean() < frames[2].mean() < frames[0].mean()


def test_nothing_moves_in_a_still_clip() -> None:
    assert not find_changes(render_clip(clip_of("still"), 128, 128)).any()
