"""Describes a clip in one of many phrasings, which nearly always name the motion and often omit other attributes.

A still clip's caption always says that nothing moves. A moving clip whose motion is omitted is described like a still
postcard, so that a prompt without motion gets any motion that suits it.

Not here: the words themselves (words.py, postcards/words.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipelines.demos.motions.choice import draw_clip_of, is_held_out
from pipelines.demos.motions.clip import MOTIONS, MOVING, STILL, Clip, name_kind
from pipelines.demos.motions.words import (
    CITY_LIGHT_PHRASES,
    LIGHT_PHRASES,
    MOVER_PHRASES,
    OPENINGS,
    SNOW_PHRASES,
    SNOW_PLACES,
    STILL_OPENINGS,
    STILL_PHRASES,
    SUN_PHRASES,
)
from pipelines.demos.postcards import describe
from pipelines.demos.postcards.captions import name_subject, vary_case
from pipelines.demos.postcards.choice import pick
from pipelines.demos.postcards.words import PLACE_NOUNS, STANDING_AT, TIME_PHRASES

UNSAID_MOTION_SHARE = 0.06


def describe_clip(clip: Clip, rng: np.random.Generator) -> str:
    """Returns one of many captions for the clip, which often omits some attributes."""
    if clip.motion != STILL and rng.random() < UNSAID_MOTION_SHARE:
        return describe(clip.scene, rng)
    return _describe(clip, rng, is_complete=rng.random() < 0.35)


def vocabulary_text(rng: np.random.Generator, count: int) -> Iterator[str]:
    """Yields captions of `count` clips, held-out ones included, for a tokenizer to learn its words from."""
    return (describe_clip(draw_clip_of(pick(rng, MOTIONS), rng), rng) for _ in range(count))


def held_out_clips(count: int, seed: int = 0) -> list[tuple[str, Clip]]:
    """Returns prompts that state every attribute of held-out clips: two of each motion for every still one."""
    rng = np.random.default_rng(seed)
    cycle = (*MOVING, *MOVING, STILL)
    prompts = []
    for index in range(count):
        motion = cycle[index % len(cycle)]
        while not is_held_out(clip := draw_clip_of(motion, rng)):
            pass
        prompts.append((_describe(clip, rng, is_complete=True), clip))
    return prompts


@dataclass(frozen=True, kw_only=True)
class _Words:
    """The words of a caption for a scene; an omitted attribute is empty."""

    name: str
    place: str
    noun: str
    time: str


def _describe(clip: Clip, rng: np.random.Generator, *, is_complete: bool) -> str:
    words = _choose_words(clip, rng, is_complete=is_complete)
    if clip.motion == STILL:
        caption = _tell_stillness(words, rng)
    else:
        caption = _tell_motion(clip, words, rng)
        if words.time:
            caption = f"{words.time}, {caption}" if rng.random() < 0.15 else f"{caption} {words.time}"
    if rng.random() < 0.1:
        caption = f"{pick(rng, OPENINGS)} {caption}"
    return vary_case(caption, rng)


def _choose_words(clip: Clip, rng: np.random.Generator, *, is_complete: bool) -> _Words:
    scene = clip.scene
    says_colour = is_complete or rng.random() < 0.8
    # At noon the sun mostly stands still, so a caption without the time would mislead.
    needs_time = clip.motion in SUN_PHRASES and scene.time == "noon"
    says_time = is_complete or needs_time or rng.random() < 0.7
    says_place = is_complete or rng.random() < 0.75
    name = name_subject(scene.subjects[0], rng, says_colour=says_colour, may_praise=False) if scene.subjects else ""
    floats = name_kind(scene) == "hot-air balloon" and rng.random() < 0.75
    noun = pick(rng, PLACE_NOUNS[scene.place])
    place = f"over {noun}" if floats else pick(rng, STANDING_AT[scene.place])
    return _Words(
        name=name,
        place=place if says_place else "",
        noun=noun if says_place or (clip.motion == STILL and not name) else "",
        time=pick(rng, TIME_PHRASES[scene.time]) if says_time else "",
    )


def _tell_motion(clip: Clip, words: _Words, rng: np.random.Generator) -> str:
    if clip.motion in SUN_PHRASES:
        return _tell_sun(pick(rng, SUN_PHRASES[clip.motion]), words, rng)
    if clip.motion == "snow falls":
        place = pick(rng, SNOW_PLACES[clip.scene.place]) if words.place else ""
        return _tell_snow(pick(rng, SNOW_PHRASES), words, place, rng)
    if clip.motion == "lights blink":
        if not words.name:
            return pick(rng, CITY_LIGHT_PHRASES)
        return _join(pick(rng, LIGHT_PHRASES[name_kind(clip.scene)]).format(it=words.name), words.place)
    moves = pick(rng, MOVER_PHRASES[clip.motion]).format(it=words.name)
    if words.place and rng.random() < 0.12:
        return f"{words.place}, {moves}"
    return _join(moves, words.place)


def _tell_sun(phrase: str, words: _Words, rng: np.random.Generator) -> str:
    if not words.name:
        return _join(phrase, f"over {words.noun}" if words.noun else "")
    if rng.random() < 0.6:
        return _join(f"{phrase} behind {words.name}", words.place)
    return f"{_join(words.name, words.place)}, {phrase}"


def _tell_snow(phrase: str, words: _Words, place: str, rng: np.random.Generator) -> str:
    if not words.name:
        return _join(phrase, place)
    if rng.random() < 0.5:
        return _join(f"{phrase} on {words.name}", words.place)
    return f"{_join(words.name, words.place)}, {phrase}"


def _tell_stillness(words: _Words, rng: np.random.Generator) -> str:
    view = _join(words.name, words.place) if words.name else words.noun
    view = _join(view, words.time)
    if rng.random() < 0.5:
        return f"{pick(rng, STILL_OPENINGS)} {view}"
    return f"{view}, {pick(rng, STILL_PHRASES)}"


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)
