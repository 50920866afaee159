"""Captions of clips name the motion that happens and never another; held-out prompts say everything."""

import numpy as np
import pytest

from pipelines.demos.motions import MOTIONS, describe_clip, held_out_clips, is_held_out, vocabulary_text
from pipelines.demos.motions.choice import draw_clip_of
from pipelines.demos.motions.clip import MOVING
from pipelines.demos.postcards import NOUNS

# What tells a motion, and what would tell another.
TOLD = {
    "sails left": ("left",),
    "sails right": ("right",),
    "sun sets": ("set", "down", "sink"),
    "sun rises": ("ris", "comes up", "climbs"),
    "balloon rises": ("ris", "climbs", "floats up"),
    "balloon drifts left": ("left",),
    "balloon drifts right": ("right",),
    "snow falls": ("snow falls", "snow is falling", "falling snow", "it snows", "it is snowing", "snowflakes fall"),
    "lights blink": ("blink", "flash", "on and off"),
    "still": ("nothing moves", "stands still", "no motion", "motionless", "a still "),
}


def tell(motion: str, count: int) -> list[str]:
    rng = np.random.default_rng(0)
    return [describe_clip(draw_clip_of(motion, rng), rng).lower() for _ in range(count)]


def without_times(caption: str) -> str:
    for word in ("sunrise", "sunset"):
        caption = caption.replace(word, "")
    return caption


@pytest.mark.parametrize("motion", MOTIONS)
def test_a_caption_tells_its_motion_nearly_always_and_never_another(motion: str) -> None:
    captions = [without_times(caption) for caption in tell(motion, 300)]
    assert np.mean([any(word in caption for word in TOLD[motion]) for caption in captions]) > 0.88
    others = {word for other, words in TOLD.items() if other != motion for word in words} - set(TOLD[motion])
    for caption in captions:
        assert not any(word in caption for word in others), caption


def test_a_still_clip_always_says_so() -> None:
    assert all(any(word in caption for word in TOLD["still"]) for caption in tell("still", 300))


def test_held_out_prompts_are_fixed_and_ask_for_every_motion() -> None:
    prompts = held_out_clips(100)
    assert prompts == held_out_clips(100)
    assert all(is_held_out(clip) for _, clip in prompts)
    motions = [clip.motion for _, clip in prompts]
    assert min(motions.count(motion) for motion in MOVING) >= 10
    assert motions.count("still") == 5


def test_a_held_out_prompt_tells_its_motion_and_names_its_subject_with_its_colour() -> None:
    for prompt, clip in held_out_clips(100):
        caption = prompt.lower()
        assert any(word in without_times(caption) for word in TOLD[clip.motion]), prompt
        for subject in clip.scene.subjects:
            assert any(f"{subject.colour} {noun}" in caption for noun in NOUNS[subject.kind]), prompt


def test_captions_are_sometimes_just_a_motion() -> None:
    captions = {caption.lower().rstrip(".") for caption in vocabulary_text(np.random.default_rng(0), 4000)}
    assert {"the sun sets", "snow falls", "the lights of the city blink"} <= captions
    assert any(caption.startswith("a red sailboat sails to the left") for caption in captions)
