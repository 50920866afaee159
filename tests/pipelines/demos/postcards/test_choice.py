"""Training never sees a held-out combination, and about a tenth is held out."""

import numpy as np

from pipelines.demos.postcards import COLOURS, PLACES, SUBJECTS, TIMES, Scene, Subject, draw_scene, is_held_out


def scene_with(subject: Subject, *, time: str = "noon", place: str = "meadow") -> Scene:
    return Scene(time=time, place=place, subjects=(subject,), weather="clear", layout=5)


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
