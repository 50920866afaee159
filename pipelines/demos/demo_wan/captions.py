"""Captions of training clips, and the questions that the text encoder's probes answer about them (demos/reading.py).

Unknown words are paired with still landscapes, so that prompts the model cannot draw become a calm view, never noise.
"""

import numpy as np

from pipelines.demos.motions import MOTIONS, Clip, describe_clip, draw_clip
from pipelines.demos.postcards import COLOURS, PLACES, SUBJECTS, TIMES
from pipelines.demos.reading import Exam
from pipelines.demos.stills.captions import draw_caption

STILL = MOTIONS[-1]
NOBODY = 0  # the answer for clips without a subject
QUESTIONS = {
    "motion": len(MOTIONS),
    "time": len(TIMES),
    "place": len(PLACES),
    "subject": 1 + len(SUBJECTS),
    "colour": 1 + len(COLOURS),
}


def is_calm(clip: Clip) -> bool:
    return clip.motion == STILL and not clip.scene.subjects


def label(clip: Clip) -> list[int]:
    """Returns the answer to each of the QUESTIONS."""
    scene = clip.scene
    subject = scene.subjects[0] if scene.subjects else None
    return [
        MOTIONS.index(clip.motion),
        TIMES.index(scene.time),
        PLACES.index(scene.place),
        1 + SUBJECTS.index(subject.kind) if subject else NOBODY,
        1 + COLOURS.index(subject.colour) if subject else NOBODY,
    ]


def draw_question(rng: np.random.Generator) -> tuple[str, list[int]]:
    """Draws a caption, with the answers for the clip that it describes."""
    clip = draw_clip(rng)
    caption, is_about_clip = draw_caption(lambda: describe_clip(clip, rng), rng)
    while not (is_about_clip or is_calm(clip)):
        clip = draw_clip(rng)
    return caption, label(clip)


EXAM = Exam(questions=QUESTIONS, draw=draw_question)
