"""Renders a scene's picture from back to front: sky, sun or moon, clouds, place, subjects."""

from __future__ import annotations

import numpy as np

from pipelines.demos.postcards.canvas import SUPERSAMPLING, Canvas, Point
from pipelines.demos.postcards.layout import Composition, compose
from pipelines.demos.postcards.light import Light, find_light
from pipelines.demos.postcards.places import PLACE_PAINTERS, draw_glitter
from pipelines.demos.postcards.scene import Scene, SceneError
from pipelines.demos.postcards.sky import draw_clouds, draw_disc, draw_stars, shade_sky
from pipelines.demos.postcards.subjects import draw_subject, find_spot

SHORTEST_SIDE = 32

# Height of the low sun above the horizon, in shorter sides, such that the place's skyline never hides it.
LOW_SUN = {"ocean": 0.045, "mountains": 0.27, "desert": 0.13, "meadow": 0.13, "city": 0.30, "snowy hills": 0.15}


def render(scene: Scene, width: int, height: int) -> np.ndarray:
    """Renders the scene as uint8 (height, width, 3); the same scene and size give the same picture."""
    layout = compose(scene)
    sun = place_sun(scene, layout, width, height)
    canvas = paint_landscape(scene, width, height, light=find_light(scene), sun=sun)
    for subject, x in zip(scene.subjects, layout.subject_x, strict=True):
        draw_subject(canvas, subject, scene, find_spot(canvas, subject, layout, x))
    return canvas.finish()


def place_sun(scene: Scene, layout: Composition, width: int, height: int) -> Point:
    """Returns the position of the sun or moon, in pixels of the finished picture."""
    low = layout.horizon * height - LOW_SUN[scene.place] * min(width, height)
    return layout.sun_x * width, low if scene.time in ("sunrise", "sunset") else 0.15 * height


def paint_landscape(scene: Scene, width: int, height: int, *, light: Light, sun: Point) -> Canvas:
    """Paints everything behind the subjects."""
    if min(width, height) < SHORTEST_SIDE:
        raise SceneError(f"{width=} {height=}: both must be at least {SHORTEST_SIDE}")
    layout = compose(scene)
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
    return canvas
