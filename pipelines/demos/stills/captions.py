"""The text of a training picture: mostly a caption, sometimes unknown words or none.

Unknown words are paired with empty landscapes, so that prompts the model cannot draw become a calm view, never noise.
"""

from collections.abc import Callable

import numpy as np

from pipelines.demos.postcards import Scene

UNKNOWN_SHARE = 0.04  # share of captions with unknown words
EMPTY_SHARE = 0.02  # share of captions without words

COMMON_WORDS = (  # noqa: SIM905 - a list of a hundred quoted words reads worse
    "a the of in on with and over under by near at from for "
    "to an some my your very old new big small tiny happy sad fast "
    "slow man woman child dog cat horse dragon robot astronaut portrait photo car train "
    "city-hall castle bridge forest river street table chair food pizza coffee flower garden music "
    "dance king queen knight space planet moonbase ship plane bicycle book computer phone market "
    "kitchen window door face hand eye smile anime style cinematic detailed 4k film oil "
    "watercolor sketch minimal abstract neon steampunk futuristic ancient"
).split()


def draw_caption(describe: Callable[[], str], rng: np.random.Generator) -> tuple[str, bool]:
    """Draws a caption, mostly from `describe`, and whether it fits the picture; unknown words need an empty scene."""
    lot = rng.random()
    if lot < UNKNOWN_SHARE:
        return _draw_unknown_words(rng), False
    if lot < UNKNOWN_SHARE + EMPTY_SHARE:
        return "", True
    return describe(), True


def is_empty(scene: Scene) -> bool:
    """Returns whether a scene is a clear landscape without a subject."""
    return not scene.subjects and scene.weather == "clear"


def _draw_unknown_words(rng: np.random.Generator) -> str:
    """Draws common words that no postcard shows, and made-up ones."""
    words = []
    for _ in range(rng.integers(1, 9)):
        if rng.random() < 0.75:
            words.append(COMMON_WORDS[rng.integers(len(COMMON_WORDS))])
        else:
            words.append("".join(rng.choice(list("aeioubcdfghklmnprstvwyz"), size=rng.integers(2, 9))))
    return " ".join(words)
