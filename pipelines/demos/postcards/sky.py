"""The sky of a postcard: gradient and halo, stars, sun or moon, clouds."""

from __future__ import annotations

import math

import numpy as np

from pipelines.demos.postcards.canvas import Canvas, Point
from pipelines.demos.postcards.layout import Composition
from pipelines.demos.postcards.light import Light


def shade_sky(width: int, height: int, *, light: Light, horizon: float, sun: Point) -> np.ndarray:
    rows = np.arange(height, dtype=np.float32)
    at = np.linspace(0, horizon * height, len(light.sky))
    column = np.stack([np.interp(rows, at, [stop[c] for stop in light.sky]) for c in range(3)], axis=1)
    columns = np.arange(width, dtype=np.float32)
    far = ((columns[None] - sun[0]) ** 2 + (rows[:, None] - sun[1]) ** 2) / (0.30 * min(width, height)) ** 2
    halo = (light.halo_strength * np.exp(-far))[..., None].astype(np.float32)
    sky = column[:, None] * (1 - halo) + np.array(light.halo, np.float32) * halo
    return sky.round().astype(np.uint8)


STAR_FIELDS = (
    ((0.08, 0.10), (0.22, 0.27), (0.36, 0.07), (0.52, 0.24), (0.66, 0.09), (0.80, 0.30), (0.93, 0.13), (0.07, 0.42),
     (0.40, 0.38), (0.63, 0.42), (0.92, 0.44)),
    ((0.05, 0.22), (0.17, 0.08), (0.31, 0.20), (0.46, 0.09), (0.58, 0.31), (0.75, 0.17), (0.88, 0.06), (0.95, 0.33),
     (0.20, 0.40), (0.44, 0.42), (0.78, 0.42)),
    ((0.12, 0.17), (0.27, 0.11), (0.43, 0.28), (0.56, 0.12), (0.71, 0.26), (0.86, 0.20), (0.95, 0.06), (0.04, 0.34),
     (0.29, 0.36), (0.57, 0.43), (0.87, 0.41)),
)  # fmt: skip


def draw_stars(canvas: Canvas, layout: Composition, moon: Point) -> None:
    for index, (x, y) in enumerate(STAR_FIELDS[layout.stars]):
        x = 1 - x if layout.is_mirrored else x
        centre = (x * canvas.width, y * canvas.height)
        if math.dist(centre, moon) < 0.16 * canvas.unit:
            continue
        radius = (0.0125 if index % 3 == 0 else 0.0095) * canvas.unit
        canvas.ellipse(centre, (radius, radius), (255, 250, 226))


def draw_disc(canvas: Canvas, centre: Point, *, is_moon: bool) -> None:
    radius = canvas.light.disc_radius * canvas.unit
    canvas.ellipse(centre, (radius, radius), canvas.light.disc)
    if is_moon:
        for dx, dy, size in ((-0.35, -0.2, 0.26), (0.3, 0.25, 0.3), (0.2, -0.45, 0.16)):
            crater = (size * radius, size * radius)
            canvas.ellipse((centre[0] + dx * radius, centre[1] + dy * radius), crater, (222, 216, 190))


# (x as share of the width, y as share of the height, width in shorter sides)
CLOUD_FIELDS = (
    ((0.16, 0.15, 0.36), (0.72, 0.27, 0.42), (0.42, 0.41, 0.26)),
    ((0.30, 0.24, 0.44), (0.86, 0.14, 0.32), (0.74, 0.42, 0.28)),
    ((0.10, 0.32, 0.34), (0.52, 0.13, 0.40), (0.90, 0.34, 0.38)),
)


def draw_clouds(canvas: Canvas, layout: Composition) -> None:
    light = canvas.light
    for x, y, size in CLOUD_FIELDS[layout.clouds]:
        cx = (1 - x if layout.is_mirrored else x) * canvas.width
        cy, length = y * canvas.height, size * canvas.unit
        for colour, lift, grow in ((light.cloud_shade, 0.0, 1.0), (light.cloud, 0.045 * length, 0.94)):
            half, base = length / 2 * grow, cy - lift
            tall = 0.15 * length * grow
            canvas.bar((cx - half, base - tall), (cx + half, base), colour, radius=tall / 2)
            for dx, dy, r in ((-0.42, 0.12, 0.15), (-0.04, 0.20, 0.22), (0.42, 0.12, 0.16)):
                r *= length * grow
                canvas.ellipse((cx + dx * half, base - dy * length * grow), (r, r * 0.86), colour)
