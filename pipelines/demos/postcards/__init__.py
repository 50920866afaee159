"""The data set "postcards": pictures and captions that a very small model can learn to match.

The demo checkpoints are a few megabytes, so their world has to be small as well: time of day x place x subject x
colour x weather, drawn as flat travel posters. Everything that captions name is drawn large and plainly; everything
else (ridge shapes, clouds, stars, positions) has a handful of fixed variants, because a tiny model averages whatever it
cannot predict and the average is blur. A scene renders at every size. A tenth of the combinations is held out from
training, so that following a prompt can be told apart from remembering one.

Read scene, choice, words, captions; then light, canvas, layout, sky, places, subjects, rendering.

Not here: classifying a picture's attributes (judge.py), pictures that move (motions/), training.
"""

from pipelines.demos.postcards.captions import describe, held_out_prompts, vocabulary_text
from pipelines.demos.postcards.choice import draw_scene, is_held_out
from pipelines.demos.postcards.rendering import render
from pipelines.demos.postcards.scene import COLOURS, PLACES, SUBJECTS, TIMES, WEATHERS, Scene, SceneError, Subject
from pipelines.demos.postcards.words import NOUNS

__all__ = [
    "COLOURS",
    "NOUNS",
    "PLACES",
    "SUBJECTS",
    "TIMES",
    "WEATHERS",
    "Scene",
    "SceneError",
    "Subject",
    "describe",
    "draw_scene",
    "held_out_prompts",
    "is_held_out",
    "render",
    "vocabulary_text",
]
