"""From a scene to its picture: sky, disc, clouds, place, subjects, from back to front."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipelines.training.postcards.canvas import SUPERSAMPLING, Canvas
from pipelines.training.postcards.layout import lay_out
from pipelines.training.postcards.light import LIGHTS, NIGHT_LAND_GAINS
from pipelines.training.postcards.places import PLACE_PAINTERS, draw_glitter
from pipelines.training.postcards.scene import Scene, SceneError
from pipelines.training.postcards.sky import draw_clouds, draw_disc, draw_stars, shade_sky
from pipelines.training.postcards.subjects import draw_subject

SHORTEST_SIDE = 32

# How far the low sun stands above the horizon, in shorter sides: behind the place's skyline, never hidden by it.
LOW_SUN = {"ocean": 0.045, "mountains": 0.27, "desert": 0.13, "meadow": 0.13, "city": 0.30, "snowy hills": 0.15}


def render(scene: Scene, width: int, height: int) -> np.ndarray:
    """The scene as uint8 (height, width, 3); the same scene and size give the same picture."""
    if min(width, height) < SHORTEST_SIDE:
        raise SceneError(f"{width=} {height=}: both must be at least {SHORTEST_SIDE}")
    layout, light = lay_out(scene), LIGHTS[scene.time]
    if scene.time == "night" and scene.place in NIGHT_LAND_GAINS:
        light = replace(light, land_gain=NIGHT_LAND_GAINS[scene.place])
    short = min(width, height)
    is_low = scene.time in ("sunrise", "sunset")
    sun = (layout.sun_x * width, layout.horizon * height - LOW_SUN[scene.place] * short if is_low else 0.15 * height)
    canvas = Canvas(shade_sky(width, height, light=light, horizon=layout.horizon, sun=sun), light)
    sun = (sun[0] * SUPERSAMPLING, sun[1] * SUPERSAMPLING)
    if scene.time == "night" and scene.weather == "clear":
        draw_stars(canvas, layout, sun)
    draw_disc(canvas, sun, is_moon=scene.time == "night")
    if scene.weather == "clouds":
        draw_clouds(canvas, layout)
    horizon = layout.horizon * canvas.height
    PLACE_PAINTERS[scene.place](canvas, layout, horizon)
    if scene.place == "ocean":
        draw_glitter(canvas, layout, horizon)
    for subject, x in zip(scene.subjects, layout.subject_x, strict=True):
        draw_subject(canvas, subject, scene, x=x * canvas.width, size=layout.subject_scale * canvas.unit)
    return canvas.finish()
