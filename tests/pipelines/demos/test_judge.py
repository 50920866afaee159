"""The shipped judge reads rendered postcards, sharp or soft, at every shape; its score counts what was asked.

Not here: training it (python -m pipelines.demos.judge prints its accuracies).
"""

import numpy as np
import pytest
from PIL import Image, ImageFilter

from pipelines.demos.judge import SHAPES, WEIGHTS_PATH, Verdict, draw_even_scene, judge, score
from pipelines.demos.postcards import Scene, Subject, render

RED_BOAT = Subject(kind="sailboat", colour="red")
SCENE = Scene(time="noon", place="ocean", subjects=(RED_BOAT,), weather="clear", layout=0)


def verdict_with(*subjects: Subject, time: str = "noon") -> Verdict:
    return Verdict(time=time, place="ocean", weather="clear", subjects=subjects)


@pytest.mark.parametrize("blur", [0.0, 0.008])
def test_rendered_scenes_are_read_back_even_when_softened(blur: float) -> None:
    rng = np.random.default_rng(7)
    scenes = [draw_even_scene(rng) for _ in range(120)]
    pictures = []
    for index, scene in enumerate(scenes):
        picture = Image.fromarray(render(scene, *SHAPES[index % len(SHAPES)]))
        pictures.append(np.asarray(picture.filter(ImageFilter.GaussianBlur(blur * min(picture.size)))))
    results = [
        is_right
        for verdict, scene in zip(judge(pictures), scenes, strict=True)
        for is_right in score(verdict, scene).values()
    ]
    assert np.mean(results) >= 0.985


def test_a_batch_of_pictures_is_read_like_a_list_of_them() -> None:
    batch = np.stack([render(SCENE, 128, 128)] * 2)
    assert judge(batch) == judge(list(batch))


def test_a_picture_that_shows_just_what_was_asked_has_every_attribute() -> None:
    assert all(score(verdict_with(RED_BOAT), SCENE).values())


def test_another_time_is_the_one_thing_wrong() -> None:
    assert [name for name, is_right in score(verdict_with(RED_BOAT, time="night"), SCENE).items() if not is_right] == [
        "time"
    ]


def test_a_wrong_colour_leaves_the_subject_present() -> None:
    results = score(verdict_with(Subject(kind="sailboat", colour="blue")), SCENE)
    assert results["sailboat present"]
    assert not results["sailboat colour"]


def test_a_missing_subject_has_no_colour_either() -> None:
    results = score(verdict_with(), SCENE)
    assert not results["sailboat present"]
    assert not results["sailboat colour"]


def test_subjects_nobody_asked_for_count_as_one_mistake() -> None:
    extra = (Subject(kind="house", colour="red"), Subject(kind="cactus", colour="green"))
    results = score(verdict_with(RED_BOAT, *extra), SCENE)
    assert [name for name, is_right in results.items() if not is_right] == ["no_extra"]


def test_the_weights_fit_into_the_repository() -> None:
    assert WEIGHTS_PATH.stat().st_size <= 400 * 1024
