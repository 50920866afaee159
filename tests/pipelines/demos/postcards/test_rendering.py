"""Postcards are drawn alike each time, with every subject visible in every place and every colour plain.

Not here: whether they are pretty (look at them), whether they can be read back (test_judge.py).
"""

import numpy as np
import pytest

from pipelines.demos.postcards import COLOURS, PLACES, SUBJECTS, TIMES, Scene, Subject, describe, render

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


def test_stars_come_out_on_clear_nights_only() -> None:
    clear, clouds = (
        render(Scene(time="night", place="meadow", subjects=(), weather=weather, layout=2), 256, 256)
        for weather in ("clear", "clouds")
    )
    star_white = (255, 250, 226)
    assert (clear == star_white).all(axis=2).sum() > 50
    assert (clouds == star_white).all(axis=2).sum() == 0


def test_the_layout_changes_the_picture_and_nothing_in_the_caption() -> None:
    other = Scene(time="sunset", place="ocean", subjects=(), weather="clear", layout=4)
    assert not np.array_equal(render(SUNSET_OCEAN, 128, 128), render(other, 128, 128))
    assert describe(SUNSET_OCEAN, np.random.default_rng(1)) == describe(other, np.random.default_rng(1))
