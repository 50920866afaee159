"""What a postcard shows: time of day x place x subjects x colours x weather, checked where it is built.

Not here: which scenes are drawn (choice.py), how they look (rendering.py), how they are described (captions.py).
"""

from __future__ import annotations

from dataclasses import dataclass

TIMES = ("sunrise", "noon", "sunset", "night")
PLACES = ("ocean", "mountains", "desert", "meadow", "city", "snowy hills")
SUBJECTS = ("sailboat", "lighthouse", "cactus", "house", "pine trees", "hot-air balloon")
COLOURS = ("red", "blue", "yellow", "green", "white", "purple", "orange")
WEATHERS = ("clear", "clouds")


class SceneError(ValueError):
    """A scene that does not exist in this small world."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One thing in the picture and the colour of its most visible part."""

    kind: str
    colour: str

    def __post_init__(self) -> None:
        if self.kind not in SUBJECTS:
            raise SceneError(f"kind={self.kind!r} is unknown; allowed: {', '.join(SUBJECTS)}")
        if self.colour not in COLOURS:
            raise SceneError(f"colour={self.colour!r} is unknown; allowed: {', '.join(COLOURS)}")


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Everything that determines a picture; `layout` seeds what no caption names. Two subjects stand left and right."""

    time: str
    place: str
    subjects: tuple[Subject, ...]
    weather: str
    layout: int

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("time", self.time, TIMES),
            ("place", self.place, PLACES),
            ("weather", self.weather, WEATHERS),
        ):
            if value not in allowed:
                raise SceneError(f"{name}={value!r} is unknown; allowed: {', '.join(allowed)}")
        if len(self.subjects) > 2 or len({subject.kind for subject in self.subjects}) < len(self.subjects):
            raise SceneError(f"subjects={self.subjects!r}: at most two, of different kinds")
        if self.layout < 0:
            raise SceneError(f"layout={self.layout} must not be negative")
