"""The phrases for the motions; a more common phrase is listed more than once.

Every phrase of a motion names its direction, and no phrase of one motion fits another. {it} is the thing that moves or
shines, with its article.
"""

from __future__ import annotations

_SAILING = (
    "{{it}} sails to the {side}",
    "{{it}} sails to the {side}",
    "{{it}} sails {side}",
    "{{it}} is sailing to the {side}",
    "{{it}} sailing to the {side}",
    "{{it}} sailing {side}",
    "{{it}} moves to the {side}",
    "{{it}} glides to the {side}",
    "{{it}} that sails to the {side}",
)
_DRIFTING = (
    "{{it}} drifts to the {side}",
    "{{it}} drifts to the {side}",
    "{{it}} drifts {side}",
    "{{it}} is drifting to the {side}",
    "{{it}} drifting to the {side}",
    "{{it}} drifting {side}",
    "{{it}} floats to the {side}",
    "{{it}} flies to the {side}",
    "{{it}} that drifts to the {side}",
)


def _toward(phrases: tuple[str, ...], side: str) -> tuple[str, ...]:
    return tuple(phrase.format(side=side) for phrase in phrases)


MOVER_PHRASES = {
    "sails left": _toward(_SAILING, "left"),
    "sails right": _toward(_SAILING, "right"),
    "balloon drifts left": _toward(_DRIFTING, "left"),
    "balloon drifts right": _toward(_DRIFTING, "right"),
    "balloon rises": (
        "{it} rises",
        "{it} rises",
        "{it} rises into the sky",
        "{it} is rising",
        "{it} rising into the sky",
        "{it} rising",
        "{it} climbs into the sky",
        "{it} floats up",
        "{it} that rises",
    ),
}
SUN_PHRASES = {
    "sun sets": (
        "the sun sets",
        "the sun sets",
        "the sun sets",
        "the sun is setting",
        "the sun goes down",
        "the sun sinks",
        "the setting sun",
    ),
    "sun rises": (
        "the sun rises",
        "the sun rises",
        "the sun rises",
        "the sun is rising",
        "the sun comes up",
        "the sun climbs",
        "the rising sun",
    ),
}
SNOW_PHRASES = (
    "snow falls",
    "snow falls",
    "snow falls",
    "snow is falling",
    "falling snow",
    "it snows",
    "it is snowing",
    "snowflakes fall",
)
SNOW_PLACES = {
    "snowy hills": ("on the hills", "on the snowy hills", "over the hills", "on snowy hills"),
    "mountains": ("in the mountains", "on the mountains", "over the mountains"),
    "city": ("in the city", "on the city", "over the city"),
}
CITY_LIGHT_PHRASES = (
    "the lights of the city blink",
    "the lights of the city blink",
    "the lights blink in the city",
    "the city lights are blinking",
    "the windows of the city blink",
    "blinking lights in the city",
    "lights go on and off in the city",
)
LIGHT_PHRASES = {
    "house": (
        "the lights of {it} blink",
        "the lights of {it} blink",
        "the windows of {it} blink",
        "the windows of {it} are blinking",
        "{it} with blinking lights",
        "{it} with blinking windows",
        "the lights of {it} go on and off",
    ),
    "lighthouse": (
        "the light of {it} blinks",
        "the light of {it} blinks",
        "{it} blinks",
        "{it} is blinking",
        "{it} with a blinking light",
        "the light of {it} flashes",
        "the light of {it} goes on and off",
    ),
}
STILL_PHRASES = ("nothing moves", "nothing moves", "everything stands still", "no motion", "motionless")
STILL_OPENINGS = ("a still picture of", "a still view of", "a motionless view of")
OPENINGS = ("video:", "a video:", "short video:", "animated postcard:", "a clip:")
