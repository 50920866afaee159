"""The data set "motions": postcards in which exactly one thing moves, with captions that name the motion.

A video model of a few million weights learns only what thousands of clips have in common. So the world is smaller than
that of the still postcards (one subject at most, five colours, a few places for each motion), and everything but the
mover stands still to the pixel.

Read clip, choice, words, captions; then rendering; then judge, which classifies a clip.

Not here: how a still postcard is drawn and described (postcards/), training.
"""

from pipelines.demos.motions.captions import describe_clip, held_out_clips, vocabulary_text
from pipelines.demos.motions.choice import draw_clip, is_held_out
from pipelines.demos.motions.clip import MOTIONS, SETTINGS, Clip, ClipError
from pipelines.demos.motions.rendering import FRAMES, render_clip

__all__ = [
    "FRAMES",
    "MOTIONS",
    "SETTINGS",
    "Clip",
    "ClipError",
    "describe_clip",
    "draw_clip",
    "held_out_clips",
    "is_held_out",
    "render_clip",
    "vocabulary_text",
]
