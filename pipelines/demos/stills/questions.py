"""The questions that the picture demos' probes answer about a caption (demos/reading.py)."""

import numpy as np

from pipelines.demos.postcards import COLOURS, PLACES, SUBJECTS, TIMES, WEATHERS, Scene, describe, draw_scene
from pipelines.demos.reading import Exam
from pipelines.demos.stills.captions import draw_caption, is_empty

# A subject is absent or has a colour; it stands alone, left or right.
QUESTIONS = {
    "time": len(TIMES),
    "place": len(PLACES),
    "weather": len(WEATHERS),
    **{f"{kind} colour": 1 + len(COLOURS) for kind in SUBJECTS},
    **{f"{kind} side": 4 for kind in SUBJECTS},
}


def draw_question(rng: np.random.Generator) -> tuple[str, list[int]]:
    """Draws a caption, with the answers for the picture that it describes."""
    scene = draw_scene(rng)
    caption, is_about_scene = draw_caption(lambda: describe(scene, rng), rng)
    while not (is_about_scene or is_empty(scene)):
        scene = draw_scene(rng)
    return caption, label(scene)


def label(scene: Scene) -> list[int]:
    """Returns the answer to each of the QUESTIONS."""
    answers = [TIMES.index(scene.time), PLACES.index(scene.place), WEATHERS.index(scene.weather)]
    kinds = [subject.kind for subject in scene.subjects]
    colours = {subject.kind: 1 + COLOURS.index(subject.colour) for subject in scene.subjects}
    sides = {kind: 1 if len(kinds) == 1 else 2 + kinds.index(kind) for kind in kinds}
    return [*answers, *(colours.get(kind, 0) for kind in SUBJECTS), *(sides.get(kind, 0) for kind in SUBJECTS)]


EXAM = Exam(questions=QUESTIONS, draw=draw_question)
