"""Chooses the clips for training, and holds out a tenth of all combinations.

A combination includes the motion: a red boat at noon may be held out sailing left and trained sailing right, so that a
held-out prompt can only be followed by combining what was learnt separately.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from pipelines.demos.motions.clip import MOVING, NOBODY, SETTINGS, STILL, Clip, list_colours
from pipelines.demos.postcards import Scene, Subject

HELD_OUT_ONE_IN = 10
STILL_SHARE = 0.07
FAINT = ("snow falls", "lights blink", STILL)
"""Motions that change few pixels or none, which a denoiser learns last."""

Combination = tuple[str, str, str, str, str]
"""Motion, time, place, kind, colour."""


def list_combinations(motion: str) -> Iterator[Combination]:
    setting = SETTINGS[motion]
    for time in dict.fromkeys(setting.times):
        for place, kinds in setting.kinds.items():
            for kind in kinds:
                for colour in list_colours(kind):
                    yield motion, time, place, kind, colour


@functools.cache
def is_combination_held_out(combination: Combination) -> bool:
    # Of six thousand salts, this one holds out some clips of every motion, and never all clips with some attribute.
    digest = hashlib.sha256("|".join(("motions-862", *combination)).encode()).digest()
    return int.from_bytes(digest[:4], "big") % HELD_OUT_ONE_IN == 0


def is_held_out(clip: Clip) -> bool:
    """Returns whether this combination is held out from training."""
    scene = clip.scene
    kind, colour = (scene.subjects[0].kind, scene.subjects[0].colour) if scene.subjects else (NOBODY, "")
    return is_combination_held_out((clip.motion, scene.time, scene.place, kind, colour))


def draw_clip(rng: np.random.Generator, *, faint_share: float = 0.0) -> Clip:
    """Draws a clip for training, never a held-out one; a share `faint_share` of clips have a motion in FAINT."""
    if faint_share and rng.random() < faint_share:
        motion = _pick(rng, FAINT)
    else:
        motion = STILL if rng.random() < STILL_SHARE else _pick(rng, MOVING)
    while is_held_out(clip := draw_clip_of(motion, rng)):
        pass
    return clip


def draw_clip_of(motion: str, rng: np.random.Generator) -> Clip:
    """Draws any clip with this motion, held-out ones included."""
    setting = SETTINGS[_pick(rng, MOVING) if motion == STILL else motion]
    place = _pick(rng, tuple(setting.kinds))
    kind = _pick(rng, setting.kinds[place])
    colour = _pick(rng, list_colours(kind))
    scene = Scene(
        time=_pick(rng, setting.times),
        place=place,
        subjects=(Subject(kind=kind, colour=colour),) if kind else (),
        weather=setting.weather,
        layout=int(rng.integers(2**31)),
    )
    return Clip(scene=scene, motion=motion)


def _pick(rng: np.random.Generator, options: Sequence[str]) -> str:
    return options[int(rng.integers(len(options)))]
