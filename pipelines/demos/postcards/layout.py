"""Composition: everything that captions do not name, such as positions, drawn from the scene's layout seed.

It has only a handful of fixed variants and narrow jitters, because a tiny model averages whatever it cannot predict and
the average is blur.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.demos.postcards.scene import Scene


@dataclass(frozen=True, kw_only=True)
class Composition:
    """Everything that captions do not name: a few fixed variants and narrow jitters, drawn from the layout seed."""

    is_mirrored: bool
    ridge: int
    clouds: int
    stars: int
    horizon: float
    subject_x: tuple[float, ...]
    subject_scale: float
    sun_x: float


def compose(scene: Scene) -> Composition:
    rng = np.random.default_rng(scene.layout)
    mirrored, ridge, clouds, stars, slot, side = (int(rng.integers(n)) for n in (2, 3, 3, 3, 3, 2))
    jitter = rng.uniform(-1, 1, size=4)
    if len(scene.subjects) == 2:
        subject_x, sun_x = (0.26, 0.74), 0.5
    elif scene.subjects:
        subject_x = ((0.29, 0.5, 0.71)[slot],)
        sun_x = (0.66, (0.2, 0.8)[side], 0.34)[slot]
    else:
        subject_x, sun_x = (), (0.36, 0.5, 0.64)[slot]
    return Composition(
        is_mirrored=bool(mirrored),
        ridge=ridge,
        clouds=clouds,
        stars=stars,
        horizon=0.62 + 0.015 * float(jitter[0]),
        subject_x=tuple(x + 0.015 * float(shift) for x, shift in zip(subject_x, jitter[1:], strict=False)),
        subject_scale=(0.9 if len(scene.subjects) == 2 else 1.0) * (1 + 0.04 * float(jitter[3])),
        sun_x=sun_x,
    )
