"""The judge of clips reads motions and attributes from sharp and softened clips, and no motion from still ones."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageFilter

from pipelines.demos.motions import MOTIONS, Clip, render_clip
from pipelines.demos.motions.choice import draw_clip_of
from pipelines.demos.motions.judge import UNCLEAR, judge_motion, score_clip, score_clips

SIZES = ((128, 128), (160, 96))
OPPOSITES = {
    "sails left": "sails right",
    "balloon drifts right": "balloon drifts left",
    "sun sets": "sun rises",
    "lights blink": "lights blink",
    "still": "still",
}


@functools.cache
def draw_clips() -> list[tuple[Clip, np.ndarray]]:
    rng = np.random.default_rng(3)
    clips = [draw_clip_of(motion, rng) for motion in MOTIONS * 4]
    return [(clip, render_clip(clip, *SIZES[index // len(MOTIONS) % 2])) for index, clip in enumerate(clips)]


def soften(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    blurred = [np.asarray(Image.fromarray(frame).filter(ImageFilter.GaussianBlur(1.2))) for frame in frames]
    return (np.stack(blurred) + rng.normal(0, 6, frames.shape)).clip(0, 255).round().astype(np.uint8)


def test_rendered_clips_are_read_back() -> None:
    clips, videos = zip(*draw_clips(), strict=True)
    results = score_clips(videos, clips)
    assert all(result["motion"] for result in results)
    assert np.mean([is_right for result in results for is_right in result.values()]) >= 0.97


def test_softened_noisy_clips_still_show_their_motion() -> None:
    rng = np.random.default_rng(0)
    assert np.mean([judge_motion(soften(frames, rng)) == clip.motion for clip, frames in draw_clips()]) >= 0.95


@pytest.mark.parametrize("motion", OPPOSITES)
def test_a_clip_played_backwards_moves_the_other_way(motion: str) -> None:
    frames = next(frames for clip, frames in draw_clips() if clip.motion == motion)
    assert judge_motion(frames[::-1]) == OPPOSITES[motion]


def test_a_sky_that_darkens_without_a_sun_that_sinks_is_no_sunset() -> None:
    frames = next(frames for clip, frames in draw_clips() if clip.motion == "still")
    darkening = (frames * np.linspace(1, 0.6, len(frames))[:, None, None, None]).astype(np.uint8)
    assert judge_motion(darkening) == UNCLEAR


def test_a_subject_of_another_colour_is_the_one_thing_wrong() -> None:
    clip, frames = next((clip, frames) for clip, frames in draw_clips() if clip.motion == "sails left")
    (subject,) = clip.scene.subjects
    other = replace(subject, colour="red" if subject.colour == "blue" else "blue")
    results = score_clip(frames, replace(clip, scene=replace(clip.scene, subjects=(other,))))
    assert [name for name, is_right in results.items() if not is_right] == ["sailboat colour"]
