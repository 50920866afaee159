"""The light of a time of day: colours of sky, land and subjects at sunrise, noon, sunset and night.

Lights can be mixed, for a sun that moves.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from pipelines.demos.postcards.scene import Scene

Rgb = tuple[int, int, int]

SUBJECT_COLOURS: dict[str, Rgb] = {
    "red": (222, 38, 40),
    "blue": (34, 92, 222),
    "yellow": (253, 212, 34),
    "green": (28, 152, 66),
    "white": (250, 249, 246),
    "purple": (142, 62, 196),
    "orange": (250, 126, 18),
}
SUBJECT_SHADES: dict[str, Rgb] = {
    "red": (150, 14, 34),
    "blue": (16, 52, 150),
    "yellow": (226, 162, 10),
    "green": (10, 102, 54),
    "white": (196, 206, 224),
    "purple": (92, 30, 144),
    "orange": (208, 84, 4),
}


@dataclass(frozen=True, kw_only=True)
class Light:
    """The colours of the sky, and how they change everything under it."""

    sky: tuple[Rgb, ...]
    disc: Rgb
    disc_radius: float
    halo: Rgb
    halo_strength: float
    haze: Rgb
    land_gain: tuple[float, float, float]
    land_haze: float
    subject_gain: tuple[float, float, float]
    cloud: Rgb
    cloud_shade: Rgb
    sea: tuple[Rgb, Rgb]
    glitter: Rgb
    has_lit_windows: bool
    lamps: float = 1.0  # how brightly lit windows and lanterns shine; 0 is off


LIGHTS = {
    "sunrise": Light(
        sky=((116, 176, 226), (176, 208, 232), (252, 214, 206), (255, 200, 168)),
        disc=(255, 246, 190),
        disc_radius=0.10,
        halo=(255, 232, 170),
        halo_strength=0.75,
        haze=(255, 208, 196),
        land_gain=(1.0, 0.93, 0.95),
        land_haze=0.12,
        subject_gain=(1.0, 0.97, 0.97),
        cloud=(255, 240, 236),
        cloud_shade=(246, 190, 196),
        sea=((240, 188, 186), (74, 140, 184)),
        glitter=(255, 246, 200),
        has_lit_windows=False,
    ),
    "noon": Light(
        sky=((30, 122, 222), (66, 156, 236), (122, 194, 246), (188, 228, 252)),
        disc=(255, 240, 120),
        disc_radius=0.085,
        halo=(250, 252, 244),
        halo_strength=0.55,
        haze=(188, 222, 246),
        land_gain=(1.0, 1.0, 1.0),
        land_haze=0.0,
        subject_gain=(1.0, 1.0, 1.0),
        cloud=(255, 255, 255),
        cloud_shade=(206, 226, 244),
        sea=((58, 166, 214), (10, 84, 158)),
        glitter=(226, 246, 255),
        has_lit_windows=False,
    ),
    "sunset": Light(
        sky=((66, 36, 112), (156, 52, 122), (238, 92, 84), (255, 176, 66)),
        disc=(255, 222, 92),
        disc_radius=0.125,
        halo=(255, 170, 60),
        halo_strength=0.75,
        haze=(240, 104, 84),
        land_gain=(0.90, 0.70, 0.68),
        land_haze=0.10,
        subject_gain=(0.98, 0.92, 0.92),
        cloud=(255, 158, 112),
        cloud_shade=(190, 72, 112),
        sea=((236, 112, 80), (66, 32, 96)),
        glitter=(255, 224, 110),
        has_lit_windows=True,
    ),
    "night": Light(
        sky=((6, 10, 40), (12, 22, 68), (26, 44, 104), (48, 74, 140)),
        disc=(250, 246, 216),
        disc_radius=0.085,
        halo=(150, 176, 230),
        halo_strength=0.45,
        haze=(52, 78, 142),
        land_gain=(0.42, 0.48, 0.66),
        land_haze=0.10,
        subject_gain=(0.90, 0.90, 0.95),
        cloud=(98, 114, 166),
        cloud_shade=(60, 74, 128),
        sea=((38, 66, 128), (8, 16, 56)),
        glitter=(224, 230, 240),
        has_lit_windows=True,
    ),
}


# At night the same gain for all places would turn sand grey and snow into blue hills.
NIGHT_LAND_GAINS = {"desert": (0.50, 0.43, 0.60), "snowy hills": (0.64, 0.70, 0.85)}


def find_light(scene: Scene) -> Light:
    light = LIGHTS[scene.time]
    if scene.time == "night" and scene.place in NIGHT_LAND_GAINS:
        return replace(light, land_gain=NIGHT_LAND_GAINS[scene.place])
    return light


def mix_lights(start: Light, end: Light, share: float) -> Light:
    """Mixes two lights, `share` of the way from `start` to `end`; whether windows are lit stays as in `start`."""

    def between(a: Any, b: Any) -> Any:
        if isinstance(a, tuple):
            return tuple(between(left, right) for left, right in zip(a, b, strict=True))
        if isinstance(a, bool):
            return a
        value = a + (b - a) * share
        return round(value) if isinstance(a, int) else value

    names = [field.name for field in fields(Light)]
    return Light(**{name: between(getattr(start, name), getattr(end, name)) for name in names})


def mix(start: Rgb, end: Rgb, share: float) -> Rgb:
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(start, end, strict=True))
    return red, green, blue
