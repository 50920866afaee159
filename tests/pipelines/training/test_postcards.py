"""The postcards keep what training relies on: determinism, held-out combinations, captions that do not lie.

Not here: whether they are pretty (look at them), whether they can be read back (test_judge.py).
"""

import numpy as np
import pytest

from pipelines.training.postcards import (
    COLOURS,
    NOUNS,
    PLACES,
    SUBJECTS,
    TIMES,
    WEATHERS,
    Scene,
    SceneError,
    Subject,
    describe,
    draw_scene,
    held_out_prompts,
    is_held_out,
    render,
    vocabulary_text,
)

SUNSET_OCEAN = Scene(time="sunset", place="ocean", subjects=(), weather="clear", layout=3)


def scene_with(subject: Subject, *, time: str = "noon", place: str = "meadow") -> Scene:
    return Scene(time=time, place=place, subjects=(subject,), weather="clear", layout=5)


@pytest.mark.parametrize(("width", "height"), [(256, 256), (320, 192), (192, 320), (128, 128)])
def test_a_scene_renders_at_the_asked_size_and_always_alike(width: int, height: int) -> None:
    picture = render(SUNSET_OCEAN, width, height)
    assert picture.shape == (height, width, 3)
    assert picture.dtype == np.uint8
    assert np.array_equal(picture, render(SUNSET_OCEAN, width, height))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", SUBJECTS)
def test_every_subject_shows_in_every_place(kind: str, place: str) -> None:
    scene = scene_with(Subject(kind=kind, colour="red"), place=place)
    empty = render(Scene(time="noon", place=place, subjects=(), weather="clear", layout=5), 128, 128)
    changed = np.abs(render(scene, 128, 128).astype(int) - empty).sum(axis=2) > 60
    assert changed.mean() > 0.03


@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("kind", SUBJECTS)
def test_two_colours_of_a_subject_differ_plainly_at_every_time(kind: str, time: str) -> None:
    pictures = [render(scene_with(Subject(kind=kind, colour=colour), time=time), 128, 128) for colour in COLOURS]
    for index, picture in enumerate(pictures):
        for other in pictures[index + 1 :]:
            difference = np.abs(picture.astype(int) - other).sum(axis=2)
            assert np.percentile(difference, 99) > 60


def test_the_layout_changes_the_picture_and_nothing_in_the_caption() -> None:
    other = Scene(time="sunset", place="ocean", subjects=(), weather="clear", layout=4)
    assert not np.array_equal(render(SUNSET_OCEAN, 128, 128), render(other, 128, 128))
    assert describe(SUNSET_OCEAN, np.random.default_rng(1)) == describe(other, np.random.default_rng(1))


def test_stars_come_out_on_clear_nights_only() -> None:
    clear, clouds = (
        render(Scene(time="night", place="meadow", subjects=(), weather=weather, layout=2), 256, 256)
        for weather in ("clear", "clouds")
    )
    star_white = (255, 250, 226)
    assert (clear == star_white).all(axis=2).sum() > 50
    assert (clouds == star_white).all(axis=2).sum() == 0


def test_training_never_draws_a_held_out_scene() -> None:
    rng = np.random.default_rng(0)
    assert not any(is_held_out(draw_scene(rng)) for _ in range(2000))


def test_about_a_tenth_of_the_combinations_is_held_out() -> None:
    combinations = [
        scene_with(Subject(kind=kind, colour=colour), time=time, place=place)
        for kind in SUBJECTS
        for colour in COLOURS
        for time in TIMES
        for place in PLACES
    ]
    assert 0.07 < np.mean([is_held_out(scene) for scene in combinations]) < 0.13


def test_held_out_prompts_are_fixed_and_mix_none_one_and_two_subjects() -> None:
    prompts = held_out_prompts(200)
    assert prompts == held_out_prompts(200)
    assert all(is_held_out(scene) for _, scene in prompts)
    assert np.bincount([len(scene.subjects) for _, scene in prompts]).tolist() == [30, 140, 30]


def test_a_held_out_prompt_names_each_subject_with_its_colour_left_one_first() -> None:
    for prompt, scene in held_out_prompts(200):
        caption = prompt.lower()
        places = []
        for subject in scene.subjects:
            found = [caption.find(f"{subject.colour} {noun}") for noun in NOUNS[subject.kind]]
            assert max(found) >= 0, prompt
            places.append(max(found))
        assert places == sorted(places), prompt


def test_a_caption_never_names_a_colour_or_subject_the_scene_lacks() -> None:
    rng = np.random.default_rng(0)
    for _ in range(3000):
        scene = draw_scene(rng)
        caption = describe(scene, rng).lower()
        lacking = set(COLOURS) - {subject.colour for subject in scene.subjects}
        assert not lacking & set(caption.replace(",", " ").replace(".", " ").split()), caption
        for kind in set(SUBJECTS) - {subject.kind for subject in scene.subjects}:
            assert f" {kind}" not in f" {caption}", caption


def test_captions_are_sometimes_bare_and_sometimes_a_full_sentence() -> None:
    captions = {caption.lower().rstrip(".") for caption in vocabulary_text(np.random.default_rng(0), 6000)}
    assert {"a lighthouse", "night", "the ocean"} <= captions
    assert any("sunset over the ocean" in caption for caption in captions)
    assert any(" on the left and " in caption for caption in captions)


def test_impossible_scenes_are_refused_with_what_is_allowed() -> None:
    with pytest.raises(SceneError, match="sunrise, noon, sunset, night"):
        Scene(time="tea time", place="ocean", subjects=(), weather="clear", layout=0)
    with pytest.raises(SceneError, match="red, blue"):
        Subject(kind="house", colour="pink")
    with pytest.raises(SceneError, match="at most two"):
        Scene(
            time="noon",
            place="ocean",
            subjects=(Subject(kind="house", colour="red"), Subject(kind="house", colour="blue")),
            weather=WEATHERS[0],
            layout=0,
        )
