"""The fake family's picture: sky, sun or moon, ridges, water or land, as words of the prompt and the seed choose.

Colours are linear blends of three sky colours and two ground colours; all shapes are soft masks, so edges stay smooth
at every size.
"""

import numpy as np

# word of the prompt -> sky at the top, sky at the horizon, sun (0..255)
SKIES = {
    "sunset": ((64, 60, 120), (255, 150, 90), (255, 226, 150)),
    "sunrise": ((110, 140, 200), (255, 190, 160), (255, 240, 200)),
    "night": ((8, 12, 38), (38, 52, 104), (235, 238, 250)),
    "noon": ((70, 140, 220), (190, 225, 245), (255, 252, 230)),
}
# word of the prompt -> far ground, near ground
GROUNDS = {
    "ocean": ((60, 110, 150), (14, 44, 84)),
    "sea": ((60, 110, 150), (14, 44, 84)),
    "desert": ((222, 170, 110), (150, 92, 56)),
    "snow": ((226, 234, 244), (150, 170, 200)),
    "city": ((92, 96, 124), (34, 36, 58)),
    "mountain": ((112, 124, 160), (44, 56, 84)),
    "meadow": ((132, 172, 104), (48, 92, 58)),
}


STAR_REACH = 4  # sizes of a star, as far as it shines


def draw_landscape(prompt: str, *, seed: int, width: int, height: int) -> np.ndarray:
    """Draws a picture as floats 0..1 (height, width, 3); the same prompt and seed look the same at every size."""
    rng = np.random.default_rng(seed)
    words = prompt.lower()
    sky = _choose(SKIES, words, rng)
    ground = _choose(GROUNDS, words, rng)
    is_water = ground == GROUNDS["ocean"]
    y, x = np.ogrid[0:height, 0:width]
    y, x = ((places.astype(np.float32) + 0.5) / places.size for places in (y, x))
    ratio = width / height
    horizon = rng.uniform(0.55, 0.66)
    sun_x, sun_y = rng.uniform(0.25, 0.75), horizon - rng.uniform(0.08, 0.4)
    if sky in (SKIES["sunset"], SKIES["sunrise"]):
        sun_y = horizon - rng.uniform(0.03, 0.12)

    picture = _blend(sky[0], sky[1], np.clip(y / horizon, 0, 1) ** 1.4)
    sun_distance = np.hypot((x - sun_x) * ratio, y - sun_y)
    picture = _over(picture, sky[2], 0.55 * np.exp(-sun_distance / 0.16))
    picture = _over(picture, sky[2], _soft_step(0.055 - sun_distance))
    if sky == SKIES["night"]:
        _draw_stars(picture, rng, x=x, y=y, ratio=ratio, horizon=horizon)
    for layer in range(2):
        ridge = horizon - 0.03 - (0.12 - 0.07 * layer) * _wave(x * ratio, rng, waves=5)
        colour = _mix(sky[1], ground[layer], 0.45 + 0.3 * layer)
        picture = _over(picture, colour, _soft_step(y - ridge) * (0.0 if is_water and layer else 1.0))

    depth = np.clip((y - horizon) / (1 - horizon), 0, 1)
    land = _blend(_mix(ground[0], sky[1], 0.25), ground[1], depth)
    if is_water:
        glitter = 0.5 + 0.5 * np.sin(depth**0.5 * 90 + 6 * _wave(x * 4, rng, waves=4))
        path = np.exp(-(((x - sun_x) * ratio / (0.05 + 0.22 * depth)) ** 2))
        land = _over(land, sky[2], 0.8 * path * glitter)
        land = _over(land, sky[1], 0.18 * glitter)
    return picture + (land - picture) * _soft_step(y - horizon)[..., None]


def _choose(table: dict, words: str, rng: np.random.Generator) -> tuple:
    drawn = list(table.values())[rng.integers(len(table))]
    return next((value for word, value in table.items() if word in words), drawn)


def _wave(x: np.ndarray, rng: np.random.Generator, *, waves: int) -> np.ndarray:
    """Returns a smooth random curve with values of about 0..1."""
    total = np.zeros_like(x)
    for number in range(waves):
        total += np.sin(x * 2.2 * 1.9**number + rng.uniform(0, 7)) / 1.9**number
    return 0.5 + total / 4


def _draw_stars(
    picture: np.ndarray, rng: np.random.Generator, *, x: np.ndarray, y: np.ndarray, ratio: float, horizon: float
) -> None:
    for _ in range(40):
        star_x, star_y, size = rng.uniform(0, 1), rng.uniform(0, horizon - 0.1), rng.uniform(0.002, 0.005)
        rows = _find_near(y, star_y, STAR_REACH * size)
        columns = _find_near(x, star_x, STAR_REACH * size / ratio)
        distance = np.hypot((x[:, columns] - star_x) * ratio, y[rows] - star_y)
        seen = picture[rows, columns]
        picture[rows, columns] = _over(seen, (255, 255, 255), np.exp(-((distance / size) ** 2)))


def _find_near(places: np.ndarray, centre: float, reach: float) -> slice:
    return slice(*np.searchsorted(places.ravel(), (centre - reach, centre + reach)))


def _soft_step(distance: np.ndarray) -> np.ndarray:
    """Rises from 0 below zero to 1 above it, over about two pixels of a 256 px picture."""
    return np.clip(distance / 0.008 + 0.5, 0, 1)


def _mix(first: tuple, second: tuple, share: float) -> tuple:
    return tuple(a + (b - a) * share for a, b in zip(first, second, strict=True))


def _blend(first: tuple, second: tuple, share: np.ndarray) -> np.ndarray:
    return _to_shares(first) + (_to_shares(second) - _to_shares(first)) * share[..., None]


def _over(picture: np.ndarray, colour: tuple, mask: np.ndarray) -> np.ndarray:
    return picture + (_to_shares(colour) - picture) * mask[..., None]


def _to_shares(colour: tuple) -> np.ndarray:
    return np.array(colour, np.float32) / 255
