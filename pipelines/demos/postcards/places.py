"""Paints the six places under the sky as flat travel posters; each stretches with the picture."""

from __future__ import annotations

import numpy as np

from pipelines.demos.postcards.canvas import Canvas, Point
from pipelines.demos.postcards.layout import Composition
from pipelines.demos.postcards.light import mix


def _hill(canvas: Canvas, layout: Composition, *, base: float, swing: float, waves: float, shift: float) -> list[Point]:
    """Returns a smooth ridge line; the layout's variant only moves its phase."""
    steps = np.linspace(0, 1, 25)
    along = (1 - steps if layout.is_mirrored else steps) * waves + shift + layout.ridge / 3
    rise = np.sin(2 * np.pi * along) + 0.35 * np.sin(4 * np.pi * along + 1.0)
    return [(float(t) * canvas.width, base - swing * canvas.unit * float(y)) for t, y in zip(steps, rise, strict=True)]


def _paint_ocean(canvas: Canvas, layout: Composition, horizon: float) -> None:
    far, near = canvas.light.sea
    canvas.slope([(0, horizon), (canvas.width, horizon)], far, near)
    unit = canvas.unit
    for x, depth, length in ((0.12, 0.10, 0.13), (0.83, 0.16, 0.15), (0.30, 0.34, 0.16), (0.70, 0.52, 0.18),
                             (0.10, 0.66, 0.17), (0.92, 0.80, 0.18), (0.42, 0.88, 0.18)):  # fmt: skip
        x = (1 - x if layout.is_mirrored else x) * canvas.width
        y = horizon + depth * (canvas.height - horizon)
        crest = mix(mix(far, near, depth), canvas.light.glitter, 0.28)
        half, thick = length * unit / 2, 0.012 * unit
        canvas.bar((x - half, y), (x + half, y + thick), crest, radius=thick / 2)


def draw_glitter(canvas: Canvas, layout: Composition, horizon: float) -> None:
    far, near = canvas.light.sea
    depth = canvas.height - horizon
    for step, (width, shift) in enumerate(
        ((0.20, 0.0), (0.15, 0.012), (0.19, -0.014), (0.12, 0.02), (0.17, -0.01), (0.10, 0.016), (0.13, -0.02))
    ):
        share = (step + 0.35) / 7.6
        y = horizon + share * depth
        x = layout.sun_x * canvas.width + shift * canvas.unit
        half, thick = width * canvas.unit / 2, 0.020 * canvas.unit
        colour = mix(canvas.light.glitter, mix(far, near, share), 0.08 + 0.35 * share)
        canvas.bar((x - half, y), (x + half, y + thick), colour, radius=thick / 2)


PEAKS = (
    ((0.14, 0.24, 0.30), (0.86, 0.27, 0.32), (0.46, 0.36, 0.34)),
    ((0.10, 0.29, 0.32), (0.56, 0.25, 0.30), (0.84, 0.35, 0.34)),
    ((0.28, 0.35, 0.34), (0.64, 0.23, 0.28), (0.93, 0.30, 0.30)),
)


def _paint_mountains(canvas: Canvas, layout: Composition, horizon: float) -> None:
    unit = canvas.unit
    far = _hill(canvas, layout, base=horizon - 0.10 * unit, swing=0.035, waves=1.5, shift=0.2)
    canvas.slope(far, canvas.land((112, 140, 176), 0.45), canvas.land((112, 140, 176), 0.65))
    foot = horizon + 0.10 * unit
    spread = max(unit, 0.8 * canvas.width)
    for x, tall, half in PEAKS[layout.ridge]:
        x = (1 - x if layout.is_mirrored else x) * canvas.width
        top, half = foot - (tall + 0.10) * unit, half * spread
        lit, dark = canvas.land((98, 122, 160), 0.10), canvas.land((64, 86, 128), 0.06)
        canvas.polygon([(x, top), (x - half, foot), (x + half, foot)], lit)
        canvas.polygon([(x, top), (x + 0.10 * half, foot), (x + half, foot)], dark)

        def at(down: float, across: float, x: float = x, top: float = top, half: float = half) -> Point:
            return x + across * down * half, top + down * (foot - top)

        snow, snow_shade = canvas.land((252, 252, 255), 0.04), canvas.land((196, 212, 238), 0.06)
        canvas.polygon([(x, top), at(0.34, -1), at(0.27, -0.45), at(0.40, -0.1), at(0.30, 0.1)], snow)
        canvas.polygon([(x, top), at(0.30, 0.1), at(0.40, 0.35), at(0.28, 0.6), at(0.36, 1)], snow_shade)
    mid = _hill(canvas, layout, base=horizon + 0.05 * unit, swing=0.022, waves=1.3, shift=0.6)
    canvas.slope(mid, canvas.land((70, 128, 116), 0.06), canvas.land((60, 112, 100)))
    near = _hill(canvas, layout, base=horizon + 0.15 * unit, swing=0.016, waves=0.9, shift=0.1)
    canvas.slope(near, canvas.land((92, 158, 100)), canvas.land((46, 104, 80)))


def _paint_desert(canvas: Canvas, layout: Composition, horizon: float) -> None:
    unit = canvas.unit
    for x, half, tall in ((0.16, 0.15, 0.13), (0.88, 0.11, 0.10)):
        x = (1 - x if layout.is_mirrored else x) * canvas.width
        half, top = half * unit, horizon - tall * unit
        rock, shade = canvas.land((206, 116, 82), 0.16), canvas.land((170, 84, 66), 0.16)
        foot = horizon + 0.06 * unit
        canvas.polygon([(x - half, foot), (x - 0.7 * half, top), (x + 0.7 * half, top), (x + half, foot)], rock)
        canvas.polygon([(x + 0.2 * half, foot), (x + 0.25 * half, top), (x + 0.7 * half, top), (x + half, foot)], shade)
    for lower, swing, waves, shift, top, bottom in (
        (0.00, 0.022, 1.2, 0.30, (246, 200, 130), (236, 178, 106)),
        (0.10, 0.026, 1.0, 0.75, (250, 208, 138), (230, 168, 96)),
        (0.21, 0.020, 0.8, 0.10, (244, 192, 116), (212, 142, 76)),
    ):
        dune = _hill(canvas, layout, base=horizon + lower * unit, swing=swing, waves=waves, shift=shift)
        canvas.slope(dune, canvas.land(top), canvas.land(bottom))


def _paint_meadow(canvas: Canvas, layout: Composition, horizon: float) -> None:
    unit = canvas.unit
    for lower, swing, waves, shift, top, bottom, depth in (
        (-0.06, 0.030, 1.2, 0.15, (120, 188, 130), (120, 188, 110), 0.30),
        (0.02, 0.026, 1.1, 0.70, (134, 204, 92), (116, 190, 78), 0.06),
        (0.13, 0.020, 0.8, 0.35, (156, 216, 84), (86, 164, 58), 0.0),
    ):
        hill = _hill(canvas, layout, base=horizon + lower * unit, swing=swing, waves=waves, shift=shift)
        canvas.slope(hill, canvas.land(top, depth), canvas.land(bottom, depth))
    flowers = ((0.06, 0.62), (0.20, 0.86), (0.36, 0.60), (0.52, 0.90), (0.65, 0.66), (0.82, 0.88), (0.94, 0.58))
    for index, (x, depth) in enumerate(flowers):
        x = (1 - x if layout.is_mirrored else x) * canvas.width
        y = horizon + depth * (canvas.height - horizon)
        petal = canvas.land(((255, 252, 240), (255, 224, 70), (250, 140, 170))[index % 3])
        for dx in (-0.022, 0.022):
            canvas.ellipse((x + dx * unit, y + abs(dx) * 0.3 * unit), (0.013 * unit, 0.013 * unit), petal)
        canvas.ellipse((x, y - 0.018 * unit), (0.015 * unit, 0.015 * unit), petal)


# (x and width as shares of the picture's width, height in shorter sides)
SKYLINES = (
    ((0.00, 0.15, 0.24), (0.17, 0.13, 0.36), (0.32, 0.17, 0.20), (0.51, 0.14, 0.31), (0.67, 0.15, 0.23),
     (0.84, 0.16, 0.34)),
    ((0.00, 0.17, 0.33), (0.19, 0.14, 0.22), (0.35, 0.13, 0.37), (0.50, 0.17, 0.25), (0.69, 0.13, 0.33),
     (0.84, 0.16, 0.21)),
    ((0.00, 0.14, 0.21), (0.16, 0.16, 0.30), (0.34, 0.14, 0.23), (0.50, 0.13, 0.38), (0.65, 0.16, 0.24),
     (0.83, 0.17, 0.31)),
)  # fmt: skip


def _paint_city(canvas: Canvas, layout: Composition, horizon: float) -> None:
    unit, wide = canvas.unit, canvas.width
    foot = horizon + 0.12 * unit

    def place(x: float, share: float) -> tuple[float, float]:
        start = 1 - x - share if layout.is_mirrored else x
        return start * wide, (start + share) * wide

    for x, share, tall in SKYLINES[(layout.ridge + 1) % 3]:
        left, right = place((x + 0.08) % 0.9, share)
        canvas.bar((left, horizon - (tall + 0.05) * unit), (right, foot), canvas.land((134, 156, 196), 0.45))
    size = 0.036 * unit
    walls = ((72, 92, 140), (92, 108, 156), (62, 78, 122))
    for index, (x, share, tall) in enumerate(SKYLINES[layout.ridge]):
        left, right = place(x, share)
        top = horizon - tall * unit
        wall = canvas.land(walls[index % 3], 0.04)
        canvas.bar((left, top), (right, foot), wall)
        columns = max(1, int((right - left - 0.02 * unit) / (0.065 * unit)))
        rows = int((foot - top - 0.07 * unit) / (0.068 * unit))
        pitch = (right - left) / columns
        for row in range(rows):
            for column in range(columns):
                is_lit = (row * 2 + column * 3 + index) % 4 != 0
                if canvas.light.has_lit_windows:
                    dark = mix(wall, (20, 24, 60), 0.35)
                    glass = mix(dark, (255, 214, 96), canvas.light.lamps) if is_lit else dark
                else:
                    glass = canvas.land((190, 222, 246), 0.05)
                cx, y = left + (column + 0.5) * pitch, top + 0.035 * unit + row * 0.068 * unit
                canvas.bar((cx - size / 2, y), (cx + size / 2, y + 1.15 * size), glass)
    canvas.slope([(0, foot), (wide, foot)], canvas.land((196, 196, 206)), canvas.land((140, 142, 160)))
    kerb = canvas.land((232, 230, 232))
    canvas.bar((0, foot), (wide, foot + 0.02 * unit), kerb)


def _paint_snowy_hills(canvas: Canvas, layout: Composition, horizon: float) -> None:
    unit = canvas.unit
    for lower, swing, waves, shift, top, bottom, depth in (
        (-0.09, 0.040, 1.3, 0.10, (206, 222, 244), (190, 210, 238), 0.22),
        (0.01, 0.034, 1.1, 0.60, (238, 244, 254), (196, 214, 240), 0.04),
        (0.13, 0.024, 0.8, 0.30, (255, 255, 255), (204, 220, 244), 0.0),
    ):
        hill = _hill(canvas, layout, base=horizon + lower * unit, swing=swing, waves=waves, shift=shift)
        canvas.slope(hill, canvas.land(top, depth), canvas.land(bottom, depth))


PLACE_PAINTERS = {
    "ocean": _paint_ocean,
    "mountains": _paint_mountains,
    "desert": _paint_desert,
    "meadow": _paint_meadow,
    "city": _paint_city,
    "snowy hills": _paint_snowy_hills,
}
