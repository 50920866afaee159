"""What the text encoders are asked about a caption, and what they read."""

import numpy as np

from pipelines.demos.postcards import Scene, Subject, describe, draw_scene
from pipelines.demos.stills.captions import UNKNOWN_SHARE, draw_caption, is_empty
from pipelines.demos.stills.questions import EXAM, QUESTIONS, label

SCENE = Scene(
    time="sunset",
    place="ocean",
    subjects=(Subject(kind="house", colour="blue"), Subject(kind="sailboat", colour="red")),
    weather="clouds",
    layout=1,
)


def test_a_scene_answers_every_question() -> None:
    answers = dict(zip(QUESTIONS, label(SCENE), strict=True))
    assert (answers["time"], answers["place"], answers["weather"]) == (2, 0, 1)
    assert (answers["house colour"], answers["sailboat colour"], answers["cactus colour"]) == (2, 1, 0)
    assert (answers["house side"], answers["sailboat side"], answers["cactus side"]) == (2, 3, 0)


def test_every_answer_is_one_of_its_question() -> None:
    rng = np.random.default_rng(0)
    answers = np.array([label(draw_scene(rng)) for _ in range(500)])
    assert (answers >= 0).all()
    assert (answers < np.array(list(QUESTIONS.values()))).all()


def test_a_few_captions_are_words_the_model_does_not_know() -> None:
    rng = np.random.default_rng(0)
    share = np.mean([not draw_caption(lambda: describe(SCENE, rng), rng)[1] for _ in range(2000)])
    assert abs(share - UNKNOWN_SHARE) < 0.02


def test_only_a_clear_landscape_is_empty() -> None:
    bare = {"time": "noon", "place": "desert", "subjects": (), "layout": 0}
    assert is_empty(Scene(**bare, weather="clear"))
    assert not is_empty(Scene(**bare, weather="clouds"))
    assert not is_empty(SCENE)


def test_words_that_name_nothing_are_answered_with_an_empty_landscape() -> None:
    rng = np.random.default_rng(0)
    asked = [EXAM.draw(rng) for _ in range(1500)]
    strange = [answers for caption, answers in asked if "dragon" in caption or "astronaut" in caption]
    assert len(strange) > 2
    assert all(not any(answers[3:]) for answers in strange)
