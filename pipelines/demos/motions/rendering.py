"""Renders a clip's frames: the landscape once if possible, the mover anew in each frame.

A mover travels about two fifths of the picture whatever the number of frames, at constant speed, and never leaves it.
Movers are placed on whole supersampled pixels, so that their shape is the same in every frame.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from PIL import Image, ImageDraw

from pipelines.demos.motions.clip import STILL, Clip
from pipelines.demos.postcards import Scene
from pipelines.demos.postcards.canvas import SUPERSAMPLING, Canvas
from pipelines.demos.postcards.layout import Composition, compose
from pipelines.demos.postcards.light import LIGHTS, Light, find_light, mix_lights
from pipelines.demos.postcards.rendering import LOW_SUN, paint_landscape, place_sun
from pipelines.demos.postcards.subjects import Spot, draw_subject, find_spot

FRAMES = 17
BLINK_FRAMES = 8  # period of blinking

# The mover is smaller than on a still postcard, to have room to move.
SCALES = {"hot-air balloon": 0.9}
UNLIT_GAIN = 0.88  # brightness of a house or lighthouse with its lamps off


@dataclass(frozen=True, kw_only=True)
class Course:
    """The start and end of the mover's path, as shares of width and height."""

    start: tuple[float, float]
    end: tuple[float, float]

    def at(self, share: float) -> tuple[float, float]:
        (x0, y0), (x1, y1) = self.start, self.end
        return x0 + (x1 - x0) * share, y0 + (y1 - y0) * share


def render_clip(clip: Clip, width: int, height: int, frames: int = FRAMES) -> np.ndarray:
    """Renders the clip as uint8 (frames, height, width, 3); the same clip and size give the same frames."""
    shares = np.linspace(0, 1, frames)
    if clip.motion in ("sun sets", "sun rises"):
        return np.stack([_render_sun(clip, width, height, float(share)) for share in shares])
    if clip.motion == "snow falls":
        return _let_snow_fall(_render_still(clip.scene, width, height), clip.scene.layout, frames)
    if clip.motion == "lights blink":
        return _blink(clip.scene, width, height, frames)
    if clip.motion == STILL:
        return np.repeat(_render_still(clip.scene, width, height)[None], frames, axis=0)
    return _move_subject(clip, width, height, shares)


# ---- boats and balloons ----------------------------------------------------------------------------------------------


def _render_still(scene: Scene, width: int, height: int) -> np.ndarray:
    layout = compose(scene)
    canvas = _paint_background(scene, layout, width, height, light=find_light(scene))
    for subject, x in zip(scene.subjects, layout.subject_x, strict=True):
        spot = find_spot(canvas, subject, layout, x)
        draw_subject(canvas, subject, scene, replace(spot, size=spot.size * SCALES.get(subject.kind, 1.0)))
    return canvas.finish()


def _paint_background(scene: Scene, layout: Composition, width: int, height: int, *, light: Light) -> Canvas:
    return paint_landscape(scene, width, height, light=light, sun=place_sun(scene, layout, width, height))


def _move_subject(clip: Clip, width: int, height: int, shares: np.ndarray) -> np.ndarray:
    scene, (subject,) = clip.scene, clip.scene.subjects
    layout = compose(scene)
    background = _paint_background(scene, layout, width, height, light=find_light(scene))
    home = find_spot(background, subject, layout, 0.5)
    course = _find_course(clip, layout, home.y / background.height)
    frames = []
    for share in shares:
        canvas = background.copy()
        x, y = course.at(float(share))
        spot = Spot(
            x=round(x * canvas.width), y=round(y * canvas.height), size=round(home.size * SCALES.get(subject.kind, 1.0))
        )
        draw_subject(canvas, subject, scene, spot)
        frames.append(canvas.finish())
    return np.stack(frames)


def _find_course(clip: Clip, layout: Composition, y: float) -> Course:
    jitter, stretch = np.random.default_rng((clip.scene.layout, 1)).uniform(-1, 1, size=2)
    if clip.motion == "balloon rises":
        x = layout.subject_x[0]
        return Course(start=(x, 0.64 + 0.02 * jitter), end=(x, 0.28 + 0.02 * stretch))
    if clip.scene.subjects[0].kind == "hot-air balloon":
        y += 0.04 * stretch
    middle, half = 0.5 + 0.02 * jitter, 0.21 + 0.02 * stretch
    left, right = (middle - half, y), (middle + half, y)
    return Course(start=right, end=left) if clip.motion.endswith("left") else Course(start=left, end=right)


# ---- the sun ---------------------------------------------------------------------------------------------------------

# The light that is mixed in, and its share, when the sun is at its lowest and at its highest.
LOW_LIGHTS = {"sunrise": ("night", 0.34), "sunset": ("night", 0.42), "noon": ("sunset", 0.28)}
HIGH_LIGHTS = {"sunrise": ("noon", 0.45), "sunset": ("noon", 0.18), "noon": ("noon", 0.0)}
HIGHEST_SUN = 0.17  # share of the height, from the top
LOWEST_NOON_SUN = 0.45
DIP = 0.06  # how far below its position on a still postcard the sun starts or ends, in shorter sides
SUN_RADIUS = 0.14  # in shorter sides; the moving sun is larger and plainer than on a still postcard
SUNRISE_DISC = (255, 226, 96)


def _render_sun(clip: Clip, width: int, height: int, share: float) -> np.ndarray:
    scene, layout = clip.scene, compose(clip.scene)
    climbed = share if clip.motion == "sun rises" else 1 - share
    lowest = layout.horizon * height - (LOW_SUN[scene.place] - DIP) * min(width, height)
    if scene.time == "noon":
        lowest = LOWEST_NOON_SUN * height
    sun = (layout.sun_x * width, lowest + (HIGHEST_SUN * height - lowest) * climbed)
    light = _find_sun_light(scene.time, climbed)
    canvas = paint_landscape(scene, width, height, light=light, sun=sun)
    for subject, x in zip(scene.subjects, layout.subject_x, strict=True):
        draw_subject(canvas, subject, scene, find_spot(canvas, subject, layout, x))
    return canvas.finish()


def _find_sun_light(time: str, climbed: float) -> Light:
    """Returns the time's light at half height, darker below and brighter above; the sun keeps its own colours."""
    middle = LIGHTS[time]
    toward, most = (LOW_LIGHTS if climbed < 0.5 else HIGH_LIGHTS)[time]
    mixed = mix_lights(middle, LIGHTS[toward], most * abs(2 * climbed - 1))
    disc = SUNRISE_DISC if time == "sunrise" else middle.disc
    return replace(mixed, disc=disc, disc_radius=SUN_RADIUS, halo=middle.halo, glitter=middle.glitter)


# ---- snow and lamps --------------------------------------------------------------------------------------------------

SNOW_FIELDS = 3
# (radius, fall per frame, flakes along a shorter side): near flakes are large and fast
SNOW_LAYERS = ((0.030, 0.026, 3), (0.020, 0.016, 3))
SNOW = (252, 253, 255)


def _let_snow_fall(picture: np.ndarray, seed: int, frames: int) -> np.ndarray:
    """Draws falling flakes over the picture; one that leaves at the bottom returns at the top."""
    height, width = picture.shape[:2]
    unit = min(width, height) * SUPERSAMPLING
    rng = np.random.default_rng((seed % SNOW_FIELDS, 2))
    layers = [
        (_draw_flakes(rng, width, height, radius=r, rows=rows), round(fall * unit)) for r, fall, rows in SNOW_LAYERS
    ]
    result = []
    for frame in range(frames):
        cover = np.zeros((height, width), np.float32)
        for mask, fall in layers:
            rolled = Image.fromarray(np.roll(mask, frame * fall, axis=0)).reduce(SUPERSAMPLING)
            cover = np.maximum(cover, np.asarray(rolled, np.float32) / 255)
        mixed = picture + (np.array(SNOW, np.float32) - picture) * cover[..., None]
        result.append(mixed.round().astype(np.uint8))
    return np.stack(result)


def _draw_flakes(rng: np.random.Generator, width: int, height: int, *, radius: float, rows: int) -> np.ndarray:
    """Draws a supersampled mask of flakes on a jittered grid, which tiles vertically."""
    wide, tall = width * SUPERSAMPLING, height * SUPERSAMPLING
    unit = min(wide, tall)
    down, across = round(rows * tall / unit), round(rows * wide / unit)
    mask = Image.new("L", (wide, tall))
    pen = ImageDraw.Draw(mask)
    for row in range(down):
        for column in range(across):
            x = (column + rng.uniform(0.1, 0.9)) * wide / across
            y = (row + rng.uniform(0.1, 0.9)) * tall / down
            for wrapped in (y - tall, y, y + tall):
                pen.ellipse(
                    (x - radius * unit, wrapped - radius * unit, x + radius * unit, wrapped + radius * unit), 255
                )
    return np.asarray(mask)


def _blink(scene: Scene, width: int, height: int, frames: int) -> np.ndarray:
    """Renders lamps that are on, half on for one frame, off, and half on again."""
    phases = np.cos(2 * np.pi * np.arange(frames) / BLINK_FRAMES)
    levels = [float(level) for level in (0.5 + 1.1 * phases).round(3).clip(0, 1)]
    pictures = {level: _render_lamps(scene, width, height, level) for level in set(levels)}
    return np.stack([pictures[level] for level in levels])


def _render_lamps(scene: Scene, width: int, height: int, level: float) -> np.ndarray:
    layout, light = compose(scene), find_light(scene)
    gain = UNLIT_GAIN + (1 - UNLIT_GAIN) * level
    red, green, blue = light.subject_gain
    light = replace(light, lamps=level, subject_gain=(gain * red, gain * green, gain * blue))
    canvas = _paint_background(scene, layout, width, height, light=light)
    for subject, x in zip(scene.subjects, layout.subject_x, strict=True):
        draw_subject(canvas, subject, scene, find_spot(canvas, subject, layout, x))
    return canvas.finish()
