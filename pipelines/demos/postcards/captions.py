"""Describes a scene in one of many phrasings, which often omit attributes.

A caption may omit but never invent; an omitted attribute has a usual value (no weather named: mostly clear).
Not here: the words themselves (words.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipelines.demos.postcards.choice import draw_any_scene, is_held_out, pick
from pipelines.demos.postcards.scene import Scene, Subject
from pipelines.demos.postcards.words import (
    MEDIA,
    NOUNS,
    PLACE_NOUNS,
    PRAISE,
    STANDING_AT,
    TIME_NOUNS,
    TIME_PHRASES,
    WEATHER_PHRASES,
)


def describe(scene: Scene, rng: np.random.Generator) -> str:
    """Returns one of many captions for the scene, which often omits some attributes."""
    return _describe(scene, rng, is_complete=False)


def vocabulary_text(rng: np.random.Generator, count: int) -> Iterator[str]:
    """Yields captions of `count` scenes, for a tokenizer to learn its words from."""
    return (describe(draw_any_scene(rng), rng) for _ in range(count))


def held_out_prompts(count: int, seed: int = 0) -> list[tuple[str, Scene]]:
    """Returns prompts that state every attribute of held-out scenes: 70 % one subject, 15 % two, 15 % none."""
    rng = np.random.default_rng(seed)
    prompts = []
    for index in range(count):
        subject_count = 0 if index % 20 < 3 else 2 if index % 20 < 6 else 1
        scene = draw_any_scene(rng)
        while not is_held_out(scene) or len(scene.subjects) != subject_count:
            scene = draw_any_scene(rng)
        prompts.append((_describe(scene, rng, is_complete=True), scene))
    return prompts


def _with_article(phrase: str) -> str:
    if phrase.endswith(("trees", "pines")):
        return phrase
    return f"{'an' if phrase[0] in 'aeiou' else 'a'} {phrase}"


def name_subject(subject: Subject, rng: np.random.Generator, *, says_colour: bool, may_praise: bool) -> str:
    words = [pick(rng, NOUNS[subject.kind])]
    if says_colour:
        words.insert(0, subject.colour)
    if may_praise and rng.random() < 0.06:
        words.insert(0, pick(rng, PRAISE))
    return _with_article(" ".join(words))


def _describe(scene: Scene, rng: np.random.Generator, *, is_complete: bool) -> str:
    is_complete = is_complete or rng.random() < 0.3
    # Omitted weather mostly means clear, and an omitted subject mostly means none, so that omissions are informative.
    says_subjects = bool(scene.subjects) and (is_complete or rng.random() < 0.95)
    says_time = is_complete or rng.random() < 0.7
    says_place = is_complete or rng.random() < 0.75
    says_weather = is_complete or rng.random() < (0.7 if scene.weather == "clouds" else 0.3)
    if not (says_subjects or says_time or says_place):
        says_time = True
    phase = "night" if scene.time == "night" else "day"
    weather = pick(rng, WEATHER_PHRASES[scene.weather, phase]) if says_weather else ""
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
        caption = f"{pick(rng, MEDIA)} {caption}"
    return vary_case(caption, rng)


def vary_case(caption: str, rng: np.random.Generator) -> str:
    """Varies a caption as people type: with or without a capital and a full stop, sometimes all in capitals."""
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
        name_subject(subject, rng, says_colour=is_complete or rng.random() < 0.75, may_praise=True)
        for subject in scene.subjects
    ]
    if len(names) == 2 and rng.random() < 0.3:
        things = f"{names[0]} on the left and {names[1]} on the right"
    else:
        things = pick(rng, (" and ", " and ", " and ", ", ", " next to ")).join(names)
    floats = scene.subjects[-1].kind == "hot-air balloon"
    over = f"over {pick(rng, PLACE_NOUNS[scene.place])}"
    place = over if floats and rng.random() < 0.75 else pick(rng, STANDING_AT[scene.place])
    time = pick(rng, TIME_PHRASES[scene.time])
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
    bare = [pick(rng, PLACE_NOUNS[scene.place])] * says_place + [pick(rng, TIME_NOUNS[scene.time])] * says_time
    tags = [*names, *(phrase.removeprefix("the ").removeprefix("a ") for phrase in bare)]
    return ", ".join(tags)


def _tell_landscape(scene: Scene, rng: np.random.Generator, *, says_time: bool, says_place: bool) -> str:
    place = pick(rng, PLACE_NOUNS[scene.place])
    noun = pick(rng, TIME_NOUNS[scene.time])
    praise = f"{pick(rng, PRAISE)} " if rng.random() < 0.4 else ""
    if says_time and says_place:
        order = rng.random()
        if order < 0.5:
            opening = noun if noun in ("noon", "midday") and not praise else _with_article(praise + noun)
            return f"{opening} {pick(rng, ('over', 'over', 'in', 'at'))} {place}"
        if order < 0.65:
            return f"{noun} over {place}"
        if order < 0.9:
            return f"{place} {pick(rng, TIME_PHRASES[scene.time])}"
        return f"{place.removeprefix('the ').removeprefix('a ')}, {noun}"
    if says_time:
        return _with_article(praise + noun) if praise else noun
    return place
