"""What a clip shows: a postcard and one motion, and which postcards each motion suits.

The settings are few on purpose: with one or two natural places for each motion (boats sail on the ocean, the sun sets
over a low horizon), a tiny model spends its weights on the motion instead of on combinations nobody asks for. Purple
and orange are left out because at 128 pixels they are most easily mistaken for blue and red. Only falling snow comes
with clouds; stars would look like motionless snowflakes.

Not here: which clips are drawn (choice.py), how they look (rendering.py), how they are described (captions.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.demos.postcards import TIMES, Scene

STILL = "still"
MOVING = (
    "sails left",
    "sails right",
    "sun sets",
    "sun rises",
    "balloon rises",
    "balloon drifts left",
    "balloon drifts right",
    "snow falls",
    "lights blink",
)
MOTIONS = (*MOVING, STILL)
NOBODY = ""  # the kind of subject in a landscape without one
COLOURS = ("red", "blue", "yellow", "green", "white")


class ClipError(ValueError):
    """A motion that does not exist in this small world, or not in this scene."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The postcards that suit a motion: kinds of subjects by place. A time listed twice is drawn more often."""

    times: tuple[str, ...]
    kinds: dict[str, tuple[str, ...]]
    weather: str = "clear"


SAILING = Setting(times=TIMES, kinds={"ocean": ("sailboat",)})
FLYING = Setting(
    times=TIMES,
    kinds={"mountains": ("hot-air balloon",), "meadow": ("hot-air balloon",), "ocean": ("hot-air balloon",)},
)
# A low horizon leaves the sun room to move. At noon only the caption tells in which direction it moves.
SUN_KINDS: dict[str, tuple[str, ...]] = {
    "ocean": (NOBODY, "lighthouse"),
    "desert": (NOBODY, "cactus"),
    "meadow": (NOBODY, "house"),
}
SETTINGS = {
    "sails left": SAILING,
    "sails right": SAILING,
    "sun sets": Setting(times=("sunset", "sunset", "noon"), kinds=SUN_KINDS),
    "sun rises": Setting(times=("sunrise", "sunrise", "noon"), kinds=SUN_KINDS),
    "balloon rises": FLYING,
    "balloon drifts left": FLYING,
    "balloon drifts right": FLYING,
    # Sunrise is left out, because flakes are invisible in front of its pale sky.
    "snow falls": Setting(
        times=("noon", "sunset", "night"),
        kinds={"snowy hills": (NOBODY, "house", "pine trees"), "mountains": (NOBODY, "pine trees"), "city": (NOBODY,)},
        weather="clouds",
    ),
    "lights blink": Setting(
        times=("night",),
        kinds={"city": (NOBODY,), "meadow": ("house",), "snowy hills": ("house",), "ocean": ("lighthouse",)},
    ),
}


@dataclass(frozen=True, kw_only=True)
class Clip:
    """A postcard and its motion; a still clip may show any motion's postcard."""

    scene: Scene
    motion: str

    def __post_init__(self) -> None:
        if self.motion not in MOTIONS:
            raise ClipError(f"motion={self.motion!r} is unknown; allowed: {', '.join(MOTIONS)}")
        if len(self.scene.subjects) > 1:
            raise ClipError(f"{self.scene.subjects!r}: a clip has one subject at most")
        motions = MOVING if self.motion == STILL else (self.motion,)
        if not any(_suits(self.scene, SETTINGS[motion]) for motion in motions):
            raise ClipError(f"{self.scene} does not suit {self.motion!r}; allowed: {[SETTINGS[m] for m in motions]}")


def list_colours(kind: str) -> tuple[str, ...]:
    """Lists the colours that a kind of subject may have; plants are green."""
    if kind == NOBODY:
        return ("",)
    return ("green",) if kind in ("cactus", "pine trees") else COLOURS


def name_kind(scene: Scene) -> str:
    return scene.subjects[0].kind if scene.subjects else NOBODY


def _suits(scene: Scene, setting: Setting) -> bool:
    return (
        scene.time in setting.times
        and scene.weather == setting.weather
        and name_kind(scene) in setting.kinds.get(scene.place, ())
        and all(subject.colour in list_colours(subject.kind) for subject in scene.subjects)
    )
