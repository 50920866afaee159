"""Draws the six subjects large and plainly in the colour that captions name.

Subjects keep their proportions, and their size is relative to the picture's shorter side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pipelines.demos.postcards.canvas import Canvas, Point
from pipelines.demos.postcards.layout import Composition
from pipelines.demos.postcards.light import SUBJECT_COLOURS, SUBJECT_SHADES, Rgb, mix
from pipelines.demos.postcards.scene import Scene, Subject

# A window or lantern at night with its lamp off.
DARK_GLASS = (28, 34, 70)
# The pond under a boat on land stays blue enough to be read as water.
PONDS = {"sunrise": (118, 168, 200), "noon": (38, 132, 196), "sunset": (108, 74, 148), "night": (28, 48, 112)}


@dataclass(frozen=True, kw_only=True)
class Spot:
    """A subject's position; called with an offset right and up, in subject sizes, it returns the point."""

    x: float
    y: float
    size: float

    def __call__(self, right: float, up: float) -> Point:
        return self.x + right * self.size, self.y - up * self.size


@dataclass(frozen=True, kw_only=True)
class _Coat:
    """The colour that captions name, on the subject's lit and shaded sides."""

    tone: Rgb
    shade: Rgb


def find_spot(canvas: Canvas, subject: Subject, layout: Composition, x: float) -> Spot:
    """Returns the subject's position, `x` of the width from the left; a balloon is in the sky."""
    y = 0.40 if subject.kind == "hot-air balloon" else 0.86
    return Spot(x=x * canvas.width, y=y * canvas.height, size=layout.subject_scale * canvas.unit)


def draw_subject(canvas: Canvas, subject: Subject, scene: Scene, at: Spot) -> None:
    coat = _Coat(tone=canvas.paint(SUBJECT_COLOURS[subject.colour]), shade=canvas.paint(SUBJECT_SHADES[subject.colour]))
    is_night = scene.time == "night"
    if subject.kind == "hot-air balloon":
        _draw_balloon(canvas, at, coat)
        return
    x, foot, size = at.x, at.y, at.size
    if subject.kind == "sailboat":
        if scene.place != "ocean":
            water = PONDS[scene.time]
            canvas.ellipse((x, foot + 0.01 * size), (0.285 * size, 0.075 * size), canvas.land((222, 212, 184)))
            canvas.ellipse((x, foot + 0.01 * size), (0.265 * size, 0.060 * size), water)
        _draw_sailboat(canvas, at, coat)
        if scene.place == "ocean":
            foam = mix(canvas.light.sea[0], canvas.light.glitter, 0.5)
            canvas.bar((x - 0.24 * size, foot - 0.005 * size), (x + 0.24 * size, foot + 0.012 * size), foam, radius=4)
        return
    if scene.place == "ocean":
        foam = mix(canvas.light.sea[0], canvas.light.glitter, 0.4)
        canvas.ellipse((x, foot + 0.028 * size), (0.30 * size, 0.052 * size), foam)
        canvas.ellipse((x, foot + 0.016 * size), (0.28 * size, 0.052 * size), canvas.land((204, 168, 116)))
        canvas.ellipse((x, foot + 0.006 * size), (0.28 * size, 0.048 * size), canvas.land((244, 218, 160)))
    else:
        ground = {
            "mountains": (52, 108, 82),
            "desert": (196, 134, 78),
            "meadow": (84, 158, 62),
            "city": (128, 128, 146),
        }
        shadow = canvas.land(ground.get(scene.place, (176, 196, 228)))
        canvas.ellipse((x + 0.02 * size, foot), (0.25 * size, 0.03 * size), shadow)
    if subject.kind == "lighthouse":
        _draw_lighthouse(canvas, at, coat, is_night=is_night)
    elif subject.kind == "cactus":
        _draw_cactus(canvas, at, coat)
    elif subject.kind == "house":
        _draw_house(canvas, at, coat, is_night=is_night)
    else:
        _draw_pine_trees(canvas, at, coat)


def _curve(start: Point, bend: Point, end: Point) -> list[Point]:
    steps = [i / 8 for i in range(9)]
    return [
        (
            (1 - t) ** 2 * start[0] + 2 * t * (1 - t) * bend[0] + t * t * end[0],
            (1 - t) ** 2 * start[1] + 2 * t * (1 - t) * bend[1] + t * t * end[1],
        )
        for t in steps
    ]


def _draw_sailboat(canvas: Canvas, at: Spot, coat: _Coat) -> None:
    mast, top = at(-0.012, 0.52), at(0.012, 0.52)
    canvas.polygon([mast, top, at(0.012, 0.06), at(-0.012, 0.06)], canvas.paint((96, 64, 48)))
    canvas.polygon([*_curve(at(0.02, 0.50), at(0.21, 0.26), at(0.22, 0.115)), at(0.02, 0.115)], coat.tone)
    canvas.polygon([*_curve(at(-0.02, 0.46), at(-0.15, 0.26), at(-0.18, 0.115)), at(-0.02, 0.115)], coat.shade)
    hull = [at(-0.23, 0.085), at(0.24, 0.085), at(0.17, 0.0), at(-0.16, 0.0)]
    canvas.polygon(hull, canvas.paint((112, 62, 40)))
    canvas.polygon(
        [at(-0.23, 0.085), at(0.24, 0.085), at(0.222, 0.062), at(-0.212, 0.062)], canvas.paint((246, 236, 220))
    )


def _draw_lighthouse(canvas: Canvas, at: Spot, coat: _Coat, *, is_night: bool) -> None:
    white, white_shade = canvas.paint((252, 250, 246)), canvas.paint((206, 212, 226))
    low, high, tall, bands = 0.105, 0.068, 0.42, 5
    for band in range(bands):
        start, end = band / bands, (band + 1) / bands
        lower, upper = low + (high - low) * start, low + (high - low) * end
        light, dark = (coat.tone, coat.shade) if band % 2 == 0 else (white, white_shade)
        canvas.polygon(
            [at(-lower, start * tall), at(lower, start * tall), at(upper, end * tall), at(-upper, end * tall)], light
        )
        canvas.polygon(
            [
                at(0.35 * lower, start * tall),
                at(lower, start * tall),
                at(upper, end * tall),
                at(0.35 * upper, end * tall),
            ],
            dark,
        )
    canvas.bar(at(-0.092, 0.438), at(0.092, 0.415), canvas.paint((58, 62, 84)))
    lamps = canvas.light.lamps
    glass = mix(DARK_GLASS, (255, 236, 140), lamps) if is_night else canvas.paint((255, 230, 150))
    canvas.bar(at(-0.055, 0.50), at(0.055, 0.438), glass)
    for dx in (-0.055, 0.043):
        canvas.bar(at(dx, 0.50), at(dx + 0.012, 0.438), canvas.paint((58, 62, 84)))
    canvas.polygon([at(-0.075, 0.50), at(0.075, 0.50), at(0.0, 0.565)], coat.shade)
    if is_night:
        canvas.glow(at(0.0, 0.47), 0.17 * at.size, mix((0, 0, 0), (255, 226, 120), lamps))


def _draw_cactus(canvas: Canvas, at: Spot, coat: _Coat) -> None:
    def limb(left: float, right: float, low: float, high: float) -> None:
        half = (right - left) / 2
        canvas.bar(at(left, high), at(right, low), coat.tone, radius=half * at.size)
        canvas.bar(
            at(left + 1.15 * half, high - 0.9 * half), at(left + 1.5 * half, low + 0.4 * half), coat.shade, radius=2
        )

    canvas.bar(at(-0.20, 0.235), at(0.0, 0.165), coat.tone, radius=0.035 * at.size)
    canvas.bar(at(0.0, 0.195), at(0.20, 0.125), coat.tone, radius=0.035 * at.size)
    limb(-0.21, -0.13, 0.165, 0.36)
    limb(0.13, 0.21, 0.125, 0.31)
    canvas.bar(at(-0.062, 0.47), at(0.062, 0.06), coat.tone, radius=0.062 * at.size)
    canvas.bar(at(-0.062, 0.20), at(0.062, 0.0), coat.tone)
    for dx in (-0.030, 0.022):
        canvas.bar(at(dx, 0.41), at(dx + 0.016, 0.0), coat.shade, radius=2)


def _draw_house(canvas: Canvas, at: Spot, coat: _Coat, *, is_night: bool) -> None:
    roof, roof_shade = canvas.paint((92, 66, 74)), canvas.paint((66, 46, 58))
    canvas.bar(at(0.09, 0.42), at(0.145, 0.28), canvas.paint((150, 92, 80)))
    canvas.bar(at(-0.205, 0.23), at(0.205, 0.0), coat.tone)
    canvas.bar(at(-0.205, 0.23), at(0.205, 0.195), coat.shade)
    canvas.polygon([at(-0.245, 0.215), at(0.245, 0.215), at(0.16, 0.37), at(-0.16, 0.37)], roof)
    canvas.polygon([at(-0.245, 0.215), at(0.245, 0.215), at(0.232, 0.238), at(-0.232, 0.238)], roof_shade)
    frame = canvas.paint((250, 246, 238))
    lamps = canvas.light.lamps
    glass = mix(DARK_GLASS, (255, 220, 100), lamps) if is_night else canvas.paint((150, 204, 234))
    canvas.bar(at(-0.042, 0.135), at(0.042, 0.0), frame)
    canvas.bar(at(-0.030, 0.123), at(0.030, 0.0), canvas.paint((108, 66, 48)))
    for dx in (-0.125, 0.125):
        canvas.bar(at(dx - 0.050, 0.165), at(dx + 0.050, 0.070), frame)
        canvas.bar(at(dx - 0.038, 0.153), at(dx + 0.038, 0.082), glass)
        if is_night:
            canvas.glow(at(dx, 0.118), 0.075 * at.size, mix((0, 0, 0), (150, 110, 30), lamps))


def _draw_pine_trees(canvas: Canvas, at: Spot, coat: _Coat) -> None:
    for dx, grow in ((-0.155, 0.74), (0.155, 0.66), (0.0, 1.0)):
        tree = Spot(x=at.x + dx * at.size, y=at.y, size=grow * at.size)
        canvas.bar(tree(-0.022, 0.10), tree(0.022, 0.0), canvas.paint((104, 68, 46)))
        for low, high, half in ((0.075, 0.27, 0.135), (0.185, 0.37, 0.108), (0.295, 0.48, 0.078)):
            canvas.polygon([tree(-half, low), tree(half, low), tree(0.0, high)], coat.tone)
            canvas.polygon([tree(0.02, low), tree(half, low), tree(0.0, high)], coat.shade)


def _draw_balloon(canvas: Canvas, at: Spot, coat: _Coat) -> None:
    # The outline of the envelope: a round crown that narrows to the mouth.
    crown = [(0.19 * math.sin(a), 0.06 + 0.19 * math.cos(a)) for a in np.linspace(0, 0.62 * math.pi, 12)]
    side = [*crown, (0.045, -0.165)]
    for share, colour in ((1.0, coat.tone), (0.66, coat.shade), (0.30, coat.tone)):
        outline = [at(x * share, y) for x, y in side] + [at(-x * share, y) for x, y in reversed(side)]
        canvas.polygon(outline, colour)
    canvas.bar(at(-0.048, -0.160), at(0.048, -0.178), canvas.paint((250, 244, 230)))
    rope = canvas.paint((90, 66, 54))
    for dx in (-0.036, 0.028):
        canvas.bar(at(dx, -0.178), at(dx + 0.008, -0.22), rope)
    canvas.bar(at(-0.046, -0.215), at(0.046, -0.275), canvas.paint((150, 96, 54)), radius=0.012 * at.size)
    canvas.bar(at(-0.046, -0.215), at(0.046, -0.230), canvas.paint((110, 68, 40)))
