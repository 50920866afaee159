"""Chooses the scenes for training, and holds out a tenth of all combinations.

Following a prompt can only be told apart from remembering one if the combination was never in training.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

import numpy as np

from pipelines.demos.postcards.scene import COLOURS, PLACES, SUBJECTS, TIMES, Scene, Subject

HELD_OUT_ONE_IN = 10

# The usual place of a subject, which a caption without a place means.
HOME = {
    "sailboat": "ocean",
    "lighthouse": "ocean",
    "cactus": "desert",
    "house": "meadow",
    "pine trees": "snowy hills",
    "hot-air balloon": "mountains",
}


@functools.cache
def _is_combination_held_out(combination: tuple[str, ...]) -> bool:
    # Of a few hundred salts, this one spreads the held-out tenth evenly over times, places, subjects and colours.
    digest = hashlib.sha256("|".join(("postcards-237", *combination)).encode()).digest()
    return int.from_bytes(digest[:4], "big") % HELD_OUT_ONE_IN == 0


def is_held_out(scene: Scene) -> bool:
    """Returns whether this combination is held out; scenes without a subject are distinguished by their weather."""
    if not scene.subjects:
        return _is_combination_held_out((scene.time, scene.place, "none", scene.weather))
    return any(
        _is_combination_held_out((scene.time, scene.place, subject.kind, subject.colour)) for subject in scene.subjects
    )


def pick(rng: np.random.Generator, options: Sequence[str]) -> str:
    return options[int(rng.integers(len(options)))]


def draw_any_scene(rng: np.random.Generator) -> Scene:
    chance = rng.random()
    count = 0 if chance < 0.12 else 2 if chance < 0.37 else 1
    kinds = [SUBJECTS[int(i)] for i in rng.permutation(len(SUBJECTS))[:count]]
    subjects = tuple(
        Subject(
            kind=kind,
            colour="green" if kind in ("cactus", "pine trees") and rng.random() < 0.55 else pick(rng, COLOURS),
        )
        for kind in kinds
    )
    place = HOME[kinds[0]] if kinds and rng.random() < 0.25 else pick(rng, PLACES)
    return Scene(
        time=pick(rng, TIMES),
        place=place,
        subjects=subjects,
        weather="clouds" if rng.random() < 0.4 else "clear",
        layout=int(rng.integers(2**31)),
    )


def draw_scene(rng: np.random.Generator) -> Scene:
    """Draws a scene for training, never a held-out one."""
    while is_held_out(scene := draw_any_scene(rng)):
        pass
    return scene
