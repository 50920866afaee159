"""The data set "postcards": pictures and captions that a very small model can learn to match.

The demo checkpoints are a few megabytes, so their world has to be small as well: time of day x place x subject x
colour x weather, drawn as flat travel posters. What a caption can say is drawn large and plainly; what it cannot say
(ridge shapes, clouds, stars, positions) comes from a handful of fixed variants, because a tiny model averages whatever
it cannot predict and the average is blur. A scene renders at every size: places stretch with the picture, subjects
keep their proportions and measure themselves against the shorter side. A tenth of the combinations is never drawn for
training, so that following a prompt can be told apart from remembering one.
Longer than most files here: words, palette and shapes of one small world, read from top to bottom.
Not here: reading a picture back into attributes (judge.py), training.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image, ImageDraw

TIMES = ("sunrise", "noon", "sunset", "night")
PLACES = ("ocean", "mountains", "desert", "meadow", "city", "snowy hills")
SUBJECTS = ("sailboat", "lighthouse", "cactus", "house", "pine trees", "hot-air balloon")
COLOURS = ("red", "blue", "yellow", "green", "white", "purple", "orange")
WEATHERS = ("clear", "clouds")

SUPERSAMPLING = 3
SHORTEST_SIDE = 32
HELD_OUT_ONE_IN = 10


class SceneError(ValueError):
    """A scene that this small world does not have."""


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
    """All that decides a picture; `layout` seeds what no caption states. Two subjects stand left and right."""

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


# ---- which scenes ----------------------------------------------------------------------------------------------------

# Where a caption that names no place should lead.
HOME = {
    "sailboat": "ocean",
    "lighthouse": "ocean",
    "cactus": "desert",
    "house": "meadow",
    "pine trees": "snowy hills",
    "hot-air balloon": "mountains",
}


@functools.cache
def _is_combination_held_out(combination: tuple[str, ...]) -> bool:
    # The salt that, of a few hundred, spreads the held-out tenth evenly over times, places, subjects and colours.
    digest = hashlib.sha256("|".join(("postcards-237", *combination)).encode()).digest()
    return int.from_bytes(digest[:4], "big") % HELD_OUT_ONE_IN == 0


def is_held_out(scene: Scene) -> bool:
    """Whether training never shows this combination; scenes without a subject are told apart by their weather."""
    if not scene.subjects:
        return _is_combination_held_out((scene.time, scene.place, "none", scene.weather))
    return any(
        _is_combination_held_out((scene.time, scene.place, subject.kind, subject.colour)) for subject in scene.subjects
    )


def _pick(rng: np.random.Generator, options: Sequence[str]) -> str:
    return options[int(rng.integers(len(options)))]


def _draw_any_scene(rng: np.random.Generator) -> Scene:
    chance = rng.random()
    count = 0 if chance < 0.12 else 2 if chance < 0.37 else 1
    kinds = [SUBJECTS[int(i)] for i in rng.permutation(len(SUBJECTS))[:count]]
    subjects = tuple(
        Subject(
            kind=kind,
            colour="green" if kind in ("cactus", "pine trees") and rng.random() < 0.55 else _pick(rng, COLOURS),
        )
        for kind in kinds
    )
    place = HOME[kinds[0]] if kinds and rng.random() < 0.25 else _pick(rng, PLACES)
    return Scene(
        time=_pick(rng, TIMES),
        place=place,
        subjects=subjects,
        weather="clouds" if rng.random() < 0.4 else "clear",
        layout=int(rng.integers(2**31)),
    )


def draw_scene(rng: np.random.Generator) -> Scene:
    """A scene of the training distribution: never a held-out one."""
    while is_held_out(scene := _draw_any_scene(rng)):
        pass
    return scene


def held_out_prompts(count: int, seed: int = 0) -> list[tuple[str, Scene]]:
    """Prompts that state every attribute of scenes never trained on: 70 % one subject, 15 % two, 15 % none."""
    rng = np.random.default_rng(seed)
    prompts = []
    for index in range(count):
        subject_count = 0 if index % 20 < 3 else 2 if index % 20 < 6 else 1
        scene = _draw_any_scene(rng)
        while not is_held_out(scene) or len(scene.subjects) != subject_count:
            scene = _draw_any_scene(rng)
        prompts.append((_describe(scene, rng, is_complete=True), scene))
    return prompts


# ---- words -----------------------------------------------------------------------------------------------------------

NOUNS = {
    "sailboat": ("sailboat", "sailboat", "sailboat", "boat", "sailing boat"),
    "lighthouse": ("lighthouse",),
    "cactus": ("cactus", "cactus", "cactus", "saguaro cactus"),
    "house": ("house", "house", "house", "cottage", "cabin"),
    "pine trees": ("pine trees", "pine trees", "pines", "fir trees", "trees"),
    "hot-air balloon": ("hot-air balloon", "hot air balloon", "balloon"),
}
PLACE_NOUNS = {
    "ocean": ("the ocean", "the ocean", "the sea", "an ocean"),
    "mountains": ("the mountains", "mountains", "the mountains"),
    "desert": ("the desert", "a desert", "the desert"),
    "meadow": ("a meadow", "the meadow", "a meadow"),
    "city": ("the city", "a city", "the city skyline"),
    "snowy hills": ("snowy hills", "the snowy hills", "hills in the snow"),
}
STANDING_AT = {
    "ocean": ("on the ocean", "by the ocean", "on the sea", "by the sea", "at the ocean"),
    "mountains": ("in the mountains", "in front of the mountains", "before the mountains"),
    "desert": ("in the desert", "in a desert", "in the desert"),
    "meadow": ("in a meadow", "in the meadow", "on a meadow"),
    "city": ("in the city", "in a city", "in front of the city"),
    "snowy hills": ("in the snowy hills", "in snowy hills", "on snowy hills", "in the snow"),
}
TIME_NOUNS = {
    "sunrise": ("sunrise", "sunrise", "dawn", "morning"),
    "noon": ("noon", "noon", "midday", "day"),
    "sunset": ("sunset", "sunset", "dusk", "evening"),
    "night": ("night", "night", "moonlit night"),
}
TIME_PHRASES = {
    "sunrise": ("at sunrise", "at sunrise", "at dawn", "in the morning"),
    "noon": ("at noon", "at noon", "at midday", "in daylight"),
    "sunset": ("at sunset", "at sunset", "at dusk", "in the evening"),
    "night": ("at night", "at night", "by moonlight", "in the moonlight"),
}
WEATHER_PHRASES = {
    ("clear", "day"): ("under a clear sky", "with a clear sky", "clear sky", "in clear weather", "cloudless sky"),
    ("clear", "night"): ("under the stars", "with stars", "starry sky", "under a starry sky", "under a clear sky"),
    ("clouds", "day"): ("with clouds", "under a cloudy sky", "cloudy sky", "with clouds in the sky", "under clouds"),
    ("clouds", "night"): ("with clouds", "under a cloudy sky", "cloudy sky", "with clouds in the sky", "under clouds"),
}
PRAISE = ("beautiful", "peaceful", "lovely", "quiet", "pretty")
MEDIA = (
    "a postcard of",
    "postcard of",
    "a painting of",
    "an illustration of",
    "a picture of",
    "a poster of",
    "travel poster of",
)


def describe(scene: Scene, rng: np.random.Generator) -> str:
    """One of many captions for the scene, often leaving some attributes unsaid."""
    return _describe(scene, rng, is_complete=False)


def vocabulary_text(rng: np.random.Generator, count: int) -> Iterator[str]:
    """Captions of `count` scenes, for a tokenizer to learn its words from."""
    return (describe(_draw_any_scene(rng), rng) for _ in range(count))


def _with_article(phrase: str) -> str:
    if phrase.endswith(("trees", "pines")):
        return phrase
    return f"{'an' if phrase[0] in 'aeiou' else 'a'} {phrase}"


def _name_subject(subject: Subject, rng: np.random.Generator, *, says_colour: bool, may_praise: bool) -> str:
    words = [_pick(rng, NOUNS[subject.kind])]
    if says_colour:
        words.insert(0, subject.colour)
    if may_praise and rng.random() < 0.06:
        words.insert(0, _pick(rng, PRAISE))
    return _with_article(" ".join(words))


def _describe(scene: Scene, rng: np.random.Generator, *, is_complete: bool) -> str:
    is_complete = is_complete or rng.random() < 0.3
    # Unsaid weather mostly means clear, and an unnamed subject mostly means none: the words left out then still inform.
    says_subjects = bool(scene.subjects) and (is_complete or rng.random() < 0.95)
    says_time = is_complete or rng.random() < 0.7
    says_place = is_complete or rng.random() < 0.75
    says_weather = is_complete or rng.random() < (0.7 if scene.weather == "clouds" else 0.3)
    if not (says_subjects or says_time or says_place):
        says_time = True
    phase = "night" if scene.time == "night" else "day"
    weather = _pick(rng, WEATHER_PHRASES[scene.weather, phase]) if says_weather else ""
    if says_subjects:
        caption = _tell_subjects(scene, rng, is_complete=is_complete, says_time=says_time, says_place=says_place)
    else:
        caption = _tell_landscape(scene, rng, says_time=says_time, says_place=says_place)
    if weather:
        joint = " " if weather.startswith(("under", "with", "in ")) and rng.random() < 0.7 else ", "
        caption = f"{weather}, {caption}" if rng.random() < 0.1 else caption + joint + weather
    if rng.random() < 0.18 and not caption.startswith(
        ("in ", "at ", "on ", "by ", "over ", "under ", "with ", "before ")
    ):
        caption = f"{_pick(rng, MEDIA)} {caption}"
    case = rng.random()
    if case < 0.5:
        caption = caption[0].upper() + caption[1:]
    elif case < 0.53:
        caption = caption.upper()
    return caption + ("." if rng.random() < 0.3 else "")


def _tell_subjects(
    scene: Scene, rng: np.random.Generator, *, is_complete: bool, says_time: bool, says_place: bool
) -> str:
    names = [
        _name_subject(subject, rng, says_colour=is_complete or rng.random() < 0.75, may_praise=True)
        for subject in scene.subjects
    ]
    if len(names) == 2 and rng.random() < 0.3:
        things = f"{names[0]} on the left and {names[1]} on the right"
    else:
        things = _pick(rng, (" and ", " and ", " and ", ", ", " next to ")).join(names)
    floats = scene.subjects[-1].kind == "hot-air balloon"
    over = f"over {_pick(rng, PLACE_NOUNS[scene.place])}"
    place = over if floats and rng.random() < 0.75 else _pick(rng, STANDING_AT[scene.place])
    time = _pick(rng, TIME_PHRASES[scene.time])
    said = [phrase for phrase, is_said in ((place, says_place), (time, says_time)) if is_said]
    order = rng.random()
    if order < 0.6:
        return " ".join([things, *said])
    if order < 0.7:
        return " ".join([things, *reversed(said)])
    if order < 0.8 and said:
        return ", ".join([" ".join(said), things])
    if order < 0.9 and said:
        landscape = _tell_landscape(scene, rng, says_time=says_time, says_place=says_place)
        return f"{landscape} with {things}"
    bare = [_pick(rng, PLACE_NOUNS[scene.place])] * says_place + [_pick(rng, TIME_NOUNS[scene.time])] * says_time
    tags = [*names, *(phrase.removeprefix("the ").removeprefix("a ") for phrase in bare)]
    return ", ".join(tags)


def _tell_landscape(scene: Scene, rng: np.random.Generator, *, says_time: bool, says_place: bool) -> str:
    place = _pick(rng, PLACE_NOUNS[scene.place])
    noun = _pick(rng, TIME_NOUNS[scene.time])
    praise = f"{_pick(rng, PRAISE)} " if rng.random() < 0.4 else ""
    if says_time and says_place:
        order = rng.random()
        if order < 0.5:
            opening = noun if noun in ("noon", "midday") and not praise else _with_article(praise + noun)
            return f"{opening} {_pick(rng, ('over', 'over', 'in', 'at'))} {place}"
        if order < 0.65:
            return f"{noun} over {place}"
        if order < 0.9:
            return f"{place} {_pick(rng, TIME_PHRASES[scene.time])}"
        return f"{place.removeprefix('the ').removeprefix('a ')}, {noun}"
    if says_time:
        return _with_article(praise + noun) if praise else noun
    return place


# ---- colours ---------------------------------------------------------------------------------------------------------

Rgb = tuple[int, int, int]
Point = tuple[float, float]

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
    """What a time of day does to the sky and to everything under it."""

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


# At night one gain for all would turn sand grey and snow into blue hills.
NIGHT_LAND_GAINS = {"desert": (0.50, 0.43, 0.60), "snowy hills": (0.64, 0.70, 0.85)}


def _mix(start: Rgb, end: Rgb, share: float) -> Rgb:
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(start, end, strict=True))
    return red, green, blue


# ---- drawing ---------------------------------------------------------------------------------------------------------


class _Canvas:
    """A supersampled picture with lengths relative to the shorter side and places relative to both."""

    def __init__(self, sky: np.ndarray, light: Light) -> None:
        image = Image.fromarray(sky)
        self.image = image.resize((image.width * SUPERSAMPLING, image.height * SUPERSAMPLING), Image.Resampling.NEAREST)
        self.pen = ImageDraw.Draw(self.image)
        self.width, self.height = self.image.size
        self.unit = min(self.image.size)
        self.light = light
        self.glows: list[tuple[float, float, float, Rgb]] = []

    def land(self, colour: Rgb, depth: float = 0.0) -> Rgb:
        """A landscape colour under this light, `depth` of the way into the haze."""
        light = self.light
        red, green, blue = (round(c * gain) for c, gain in zip(colour, light.land_gain, strict=True))
        return _mix((red, green, blue), light.haze, light.land_haze + depth * (1 - light.land_haze))

    def paint(self, colour: Rgb) -> Rgb:
        """A subject's colour under this light: changed far less than the landscape, so that it keeps its name."""
        red, green, blue = (round(c * gain) for c, gain in zip(colour, self.light.subject_gain, strict=True))
        return red, green, blue

    def polygon(self, points: Sequence[Point], colour: Rgb) -> None:
        self.pen.polygon(points, fill=colour)

    def ellipse(self, centre: Point, radii: Point, colour: Rgb) -> None:
        (x, y), (rx, ry) = centre, radii
        self.pen.ellipse((x - rx, y - ry, x + rx, y + ry), fill=colour)

    def bar(self, start: Point, end: Point, colour: Rgb, *, radius: float = 0.0) -> None:
        self.pen.rounded_rectangle((*start, *end), radius=radius, fill=colour)

    def slope(self, outline: Sequence[Point], top: Rgb, bottom: Rgb) -> None:
        """Everything under the outline, from left edge to right edge, as a vertical gradient."""
        first_row = max(0, int(min(y for _, y in outline)))
        rows = self.height - first_row
        share = np.linspace(0, 1, rows)[:, None, None]
        column = (np.array(top) * (1 - share) + np.array(bottom) * share).round().astype(np.uint8)
        gradient = Image.fromarray(column).resize((self.width, rows), Image.Resampling.NEAREST)
        mask = Image.new("L", (self.width, rows))
        corners = [(float(self.width), float(rows)), (0.0, float(rows))]
        ImageDraw.Draw(mask).polygon([*((x, y - first_row) for x, y in outline), *corners], fill=255)
        self.image.paste(gradient, (0, first_row), mask)

    def glow(self, centre: Point, radius: float, colour: Rgb) -> None:
        """Light added over the finished picture."""
        self.glows.append((*centre, radius, colour))

    def finish(self) -> np.ndarray:
        picture = np.asarray(self.image.reduce(SUPERSAMPLING))
        if not self.glows:
            return picture
        bright = picture.astype(np.float32)
        rows = np.arange(bright.shape[0], dtype=np.float32)[:, None]
        columns = np.arange(bright.shape[1], dtype=np.float32)[None]
        for x, y, radius, colour in self.glows:
            far = ((columns - x / SUPERSAMPLING) ** 2 + (rows - y / SUPERSAMPLING) ** 2) / (radius / SUPERSAMPLING) ** 2
            bright += (255 - bright) * (np.exp(-far * 2)[..., None] * np.array(colour, np.float32) / 255)
        return bright.clip(0, 255).round().astype(np.uint8)


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """What no caption says: a few fixed variants and narrow jitters, drawn from the scene's layout seed."""

    is_mirrored: bool
    ridge: int
    clouds: int
    stars: int
    horizon: float
    subject_x: tuple[float, ...]
    subject_scale: float
    sun_x: float


def _lay_out(scene: Scene) -> _Layout:
    rng = np.random.default_rng(scene.layout)
    mirrored, ridge, clouds, stars, slot, side = (int(rng.integers(n)) for n in (2, 3, 3, 3, 3, 2))
    jitter = rng.uniform(-1, 1, size=4)
    if len(scene.subjects) == 2:
        subject_x, sun_x = (0.26, 0.74), 0.5
    elif scene.subjects:
        subject_x = ((0.29, 0.5, 0.71)[slot],)
        sun_x = (0.66, (0.2, 0.8)[side], 0.34)[slot]
    else:
        subject_x, sun_x = (), (0.36, 0.5, 0.64)[slot]
    return _Layout(
        is_mirrored=bool(mirrored),
        ridge=ridge,
        clouds=clouds,
        stars=stars,
        horizon=0.62 + 0.015 * float(jitter[0]),
        subject_x=tuple(x + 0.015 * float(shift) for x, shift in zip(subject_x, jitter[1:], strict=False)),
        subject_scale=(0.9 if len(scene.subjects) == 2 else 1.0) * (1 + 0.04 * float(jitter[3])),
        sun_x=sun_x,
    )


# How far the low sun stands above the horizon, in shorter sides: behind the place's skyline, never hidden by it.
LOW_SUN = {"ocean": 0.045, "mountains": 0.27, "desert": 0.13, "meadow": 0.13, "city": 0.30, "snowy hills": 0.15}


def render(scene: Scene, width: int, height: int) -> np.ndarray:
    """The scene as uint8 (height, width, 3); the same scene and size give the same picture."""
    if min(width, height) < SHORTEST_SIDE:
        raise SceneError(f"{width=} {height=}: both must be at least {SHORTEST_SIDE}")
    layout, light = _lay_out(scene), LIGHTS[scene.time]
    if scene.time == "night" and scene.place in NIGHT_LAND_GAINS:
        light = replace(light, land_gain=NIGHT_LAND_GAINS[scene.place])
    short = min(width, height)
    is_low = scene.time in ("sunrise", "sunset")
    sun = (layout.sun_x * width, layout.horizon * height - LOW_SUN[scene.place] * short if is_low else 0.15 * height)
    canvas = _Canvas(_shade_sky(width, height, light=light, horizon=layout.horizon, sun=sun), light)
    sun = (sun[0] * SUPERSAMPLING, sun[1] * SUPERSAMPLING)
    if scene.time == "night" and scene.weather == "clear":
        _draw_stars(canvas, layout, sun)
    _draw_disc(canvas, sun, is_moon=scene.time == "night")
    if scene.weather == "clouds":
        _draw_clouds(canvas, layout)
    horizon = layout.horizon * canvas.height
    PLACE_PAINTERS[scene.place](canvas, layout, horizon)
    if scene.place == "ocean":
        _draw_glitter(canvas, layout, horizon)
    for subject, x in zip(scene.subjects, layout.subject_x, strict=True):
        _draw_subject(canvas, subject, scene, x=x * canvas.width, size=layout.subject_scale * canvas.unit)
    return canvas.finish()


def _shade_sky(width: int, height: int, *, light: Light, horizon: float, sun: Point) -> np.ndarray:
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


def _draw_stars(canvas: _Canvas, layout: _Layout, moon: Point) -> None:
    for index, (x, y) in enumerate(STAR_FIELDS[layout.stars]):
        x = 1 - x if layout.is_mirrored else x
        centre = (x * canvas.width, y * canvas.height)
        if math.dist(centre, moon) < 0.16 * canvas.unit:
            continue
        radius = (0.0125 if index % 3 == 0 else 0.0095) * canvas.unit
        canvas.ellipse(centre, (radius, radius), (255, 250, 226))


def _draw_disc(canvas: _Canvas, centre: Point, *, is_moon: bool) -> None:
    radius = canvas.light.disc_radius * canvas.unit
    canvas.ellipse(centre, (radius, radius), canvas.light.disc)
    if is_moon:
        for dx, dy, size in ((-0.35, -0.2, 0.26), (0.3, 0.25, 0.3), (0.2, -0.45, 0.16)):
            crater = (size * radius, size * radius)
            canvas.ellipse((centre[0] + dx * radius, centre[1] + dy * radius), crater, (222, 216, 190))


# (x of width, y of height, width in shorter sides)
CLOUD_FIELDS = (
    ((0.16, 0.15, 0.36), (0.72, 0.27, 0.42), (0.42, 0.41, 0.26)),
    ((0.30, 0.24, 0.44), (0.86, 0.14, 0.32), (0.74, 0.42, 0.28)),
    ((0.10, 0.32, 0.34), (0.52, 0.13, 0.40), (0.90, 0.34, 0.38)),
)


def _draw_clouds(canvas: _Canvas, layout: _Layout) -> None:
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


# ---- places ----------------------------------------------------------------------------------------------------------


def _hill(canvas: _Canvas, layout: _Layout, *, base: float, swing: float, waves: float, shift: float) -> list[Point]:
    """A smooth ridge line; the layout's variant only moves its phase."""
    steps = np.linspace(0, 1, 25)
    along = (1 - steps if layout.is_mirrored else steps) * waves + shift + layout.ridge / 3
    rise = np.sin(2 * np.pi * along) + 0.35 * np.sin(4 * np.pi * along + 1.0)
    return [(float(t) * canvas.width, base - swing * canvas.unit * float(y)) for t, y in zip(steps, rise, strict=True)]


def _paint_ocean(canvas: _Canvas, layout: _Layout, horizon: float) -> None:
    far, near = canvas.light.sea
    canvas.slope([(0, horizon), (canvas.width, horizon)], far, near)
    unit = canvas.unit
    for x, depth, length in ((0.12, 0.10, 0.13), (0.83, 0.16, 0.15), (0.30, 0.34, 0.16), (0.70, 0.52, 0.18),
                             (0.10, 0.66, 0.17), (0.92, 0.80, 0.18), (0.42, 0.88, 0.18)):  # fmt: skip
        x = (1 - x if layout.is_mirrored else x) * canvas.width
        y = horizon + depth * (canvas.height - horizon)
        crest = _mix(_mix(far, near, depth), canvas.light.glitter, 0.28)
        half, thick = length * unit / 2, 0.012 * unit
        canvas.bar((x - half, y), (x + half, y + thick), crest, radius=thick / 2)


def _draw_glitter(canvas: _Canvas, layout: _Layout, horizon: float) -> None:
    far, near = canvas.light.sea
    depth = canvas.height - horizon
    for step, (width, shift) in enumerate(
        ((0.20, 0.0), (0.15, 0.012), (0.19, -0.014), (0.12, 0.02), (0.17, -0.01), (0.10, 0.016), (0.13, -0.02))
    ):
        share = (step + 0.35) / 7.6
        y = horizon + share * depth
        x = layout.sun_x * canvas.width + shift * canvas.unit
        half, thick = width * canvas.unit / 2, 0.020 * canvas.unit
        colour = _mix(canvas.light.glitter, _mix(far, near, share), 0.08 + 0.35 * share)
        canvas.bar((x - half, y), (x + half, y + thick), colour, radius=thick / 2)


PEAKS = (
    ((0.14, 0.24, 0.30), (0.86, 0.27, 0.32), (0.46, 0.36, 0.34)),
    ((0.10, 0.29, 0.32), (0.56, 0.25, 0.30), (0.84, 0.35, 0.34)),
    ((0.28, 0.35, 0.34), (0.64, 0.23, 0.28), (0.93, 0.30, 0.30)),
)


def _paint_mountains(canvas: _Canvas, layout: _Layout, horizon: float) -> None:
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


def _paint_desert(canvas: _Canvas, layout: _Layout, horizon: float) -> None:
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


def _paint_meadow(canvas: _Canvas, layout: _Layout, horizon: float) -> None:
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


# (x of width, width of width, height in shorter sides)
SKYLINES = (
    ((0.00, 0.15, 0.24), (0.17, 0.13, 0.36), (0.32, 0.17, 0.20), (0.51, 0.14, 0.31), (0.67, 0.15, 0.23),
     (0.84, 0.16, 0.34)),
    ((0.00, 0.17, 0.33), (0.19, 0.14, 0.22), (0.35, 0.13, 0.37), (0.50, 0.17, 0.25), (0.69, 0.13, 0.33),
     (0.84, 0.16, 0.21)),
    ((0.00, 0.14, 0.21), (0.16, 0.16, 0.30), (0.34, 0.14, 0.23), (0.50, 0.13, 0.38), (0.65, 0.16, 0.24),
     (0.83, 0.17, 0.31)),
)  # fmt: skip


def _paint_city(canvas: _Canvas, layout: _Layout, horizon: float) -> None:
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
                    glass = (255, 214, 96) if is_lit else _mix(wall, (20, 24, 60), 0.35)
                else:
                    glass = canvas.land((190, 222, 246), 0.05)
                cx, y = left + (column + 0.5) * pitch, top + 0.035 * unit + row * 0.068 * unit
                canvas.bar((cx - size / 2, y), (cx + size / 2, y + 1.15 * size), glass)
    canvas.slope([(0, foot), (wide, foot)], canvas.land((196, 196, 206)), canvas.land((140, 142, 160)))
    kerb = canvas.land((232, 230, 232))
    canvas.bar((0, foot), (wide, foot + 0.02 * unit), kerb)


def _paint_snowy_hills(canvas: _Canvas, layout: _Layout, horizon: float) -> None:
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


# ---- subjects --------------------------------------------------------------------------------------------------------


# The pond under a boat on land stays blue enough to be read as water.
PONDS = {"sunrise": (118, 168, 200), "noon": (38, 132, 196), "sunset": (108, 74, 148), "night": (28, 48, 112)}


@dataclass(frozen=True, kw_only=True)
class _Spot:
    """Where a subject stands; called with an offset in subject sizes, right and up, it gives the point."""

    x: float
    y: float
    size: float

    def __call__(self, right: float, up: float) -> Point:
        return self.x + right * self.size, self.y - up * self.size


@dataclass(frozen=True, kw_only=True)
class _Coat:
    """The colour a subject is named by, on its lit and on its shaded side."""

    tone: Rgb
    shade: Rgb


def _draw_subject(canvas: _Canvas, subject: Subject, scene: Scene, *, x: float, size: float) -> None:
    coat = _Coat(tone=canvas.paint(SUBJECT_COLOURS[subject.colour]), shade=canvas.paint(SUBJECT_SHADES[subject.colour]))
    is_night = scene.time == "night"
    if subject.kind == "hot-air balloon":
        _draw_balloon(canvas, _Spot(x=x, y=0.40 * canvas.height, size=size), coat)
        return
    foot = 0.86 * canvas.height
    at = _Spot(x=x, y=foot, size=size)
    if subject.kind == "sailboat":
        if scene.place != "ocean":
            water = PONDS[scene.time]
            canvas.ellipse((x, foot + 0.01 * size), (0.285 * size, 0.075 * size), canvas.land((222, 212, 184)))
            canvas.ellipse((x, foot + 0.01 * size), (0.265 * size, 0.060 * size), water)
        _draw_sailboat(canvas, at, coat)
        if scene.place == "ocean":
            foam = _mix(canvas.light.sea[0], canvas.light.glitter, 0.5)
            canvas.bar((x - 0.24 * size, foot - 0.005 * size), (x + 0.24 * size, foot + 0.012 * size), foam, radius=4)
        return
    if scene.place == "ocean":
        foam = _mix(canvas.light.sea[0], canvas.light.glitter, 0.4)
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


def _draw_sailboat(canvas: _Canvas, at: _Spot, coat: _Coat) -> None:
    mast, top = at(-0.012, 0.52), at(0.012, 0.52)
    canvas.polygon([mast, top, at(0.012, 0.06), at(-0.012, 0.06)], canvas.paint((96, 64, 48)))
    canvas.polygon([*_curve(at(0.02, 0.50), at(0.21, 0.26), at(0.22, 0.115)), at(0.02, 0.115)], coat.tone)
    canvas.polygon([*_curve(at(-0.02, 0.46), at(-0.15, 0.26), at(-0.18, 0.115)), at(-0.02, 0.115)], coat.shade)
    hull = [at(-0.23, 0.085), at(0.24, 0.085), at(0.17, 0.0), at(-0.16, 0.0)]
    canvas.polygon(hull, canvas.paint((112, 62, 40)))
    canvas.polygon(
        [at(-0.23, 0.085), at(0.24, 0.085), at(0.222, 0.062), at(-0.212, 0.062)], canvas.paint((246, 236, 220))
    )


def _draw_lighthouse(canvas: _Canvas, at: _Spot, coat: _Coat, *, is_night: bool) -> None:
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
    canvas.bar(at(-0.055, 0.50), at(0.055, 0.438), (255, 236, 140) if is_night else canvas.paint((255, 230, 150)))
    for dx in (-0.055, 0.043):
        canvas.bar(at(dx, 0.50), at(dx + 0.012, 0.438), canvas.paint((58, 62, 84)))
    canvas.polygon([at(-0.075, 0.50), at(0.075, 0.50), at(0.0, 0.565)], coat.shade)
    if is_night:
        canvas.glow(at(0.0, 0.47), 0.17 * at.size, (255, 226, 120))


def _draw_cactus(canvas: _Canvas, at: _Spot, coat: _Coat) -> None:
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


def _draw_house(canvas: _Canvas, at: _Spot, coat: _Coat, *, is_night: bool) -> None:
    roof, roof_shade = canvas.paint((92, 66, 74)), canvas.paint((66, 46, 58))
    canvas.bar(at(0.09, 0.42), at(0.145, 0.28), canvas.paint((150, 92, 80)))
    canvas.bar(at(-0.205, 0.23), at(0.205, 0.0), coat.tone)
    canvas.bar(at(-0.205, 0.23), at(0.205, 0.195), coat.shade)
    canvas.polygon([at(-0.245, 0.215), at(0.245, 0.215), at(0.16, 0.37), at(-0.16, 0.37)], roof)
    canvas.polygon([at(-0.245, 0.215), at(0.245, 0.215), at(0.232, 0.238), at(-0.232, 0.238)], roof_shade)
    frame = canvas.paint((250, 246, 238))
    glass = (255, 220, 100) if is_night else canvas.paint((150, 204, 234))
    canvas.bar(at(-0.042, 0.135), at(0.042, 0.0), frame)
    canvas.bar(at(-0.030, 0.123), at(0.030, 0.0), canvas.paint((108, 66, 48)))
    for dx in (-0.125, 0.125):
        canvas.bar(at(dx - 0.050, 0.165), at(dx + 0.050, 0.070), frame)
        canvas.bar(at(dx - 0.038, 0.153), at(dx + 0.038, 0.082), glass)
        if is_night:
            canvas.glow(at(dx, 0.118), 0.075 * at.size, (150, 110, 30))


def _draw_pine_trees(canvas: _Canvas, at: _Spot, coat: _Coat) -> None:
    for dx, grow in ((-0.155, 0.74), (0.155, 0.66), (0.0, 1.0)):
        tree = _Spot(x=at.x + dx * at.size, y=at.y, size=grow * at.size)
        canvas.bar(tree(-0.022, 0.10), tree(0.022, 0.0), canvas.paint((104, 68, 46)))
        for low, high, half in ((0.075, 0.27, 0.135), (0.185, 0.37, 0.108), (0.295, 0.48, 0.078)):
            canvas.polygon([tree(-half, low), tree(half, low), tree(0.0, high)], coat.tone)
            canvas.polygon([tree(0.02, low), tree(half, low), tree(0.0, high)], coat.shade)


def _draw_balloon(canvas: _Canvas, at: _Spot, coat: _Coat) -> None:
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
