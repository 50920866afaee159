"""Which sizes can be learnt, of those that are asked for by hand: of a plan, of a pack. Importable without jax.

Not here: sizes of pictures that are there (data/buckets.py).
"""

import math
from collections.abc import Callable
from dataclasses import replace

from pipelines.errors import RecipeError
from pipelines.families.trainable import Learner
from pipelines.messages import Message, english
from pipelines.models.model import Model, Shape
from pipelines.training.configs import find_known_configs
from pipelines.training.data.buckets import choose_bucket
from pipelines.training.settings import TrainingSettings

SMALLEST, LARGEST = 64, 4096
"""Sides in pixels, as of `--resolution`."""


def parse_size(text: str, model: Model) -> Shape:
    """Returns the size of a text; raises RecipeError for one that is none."""
    try:
        return Shape.parse(text)
    except ValueError as error:
        raise RecipeError({"shape": english(f"{text} is no size, such as {model.default_shape}")}) from error


def find_multiple(model: Model, learner: Learner) -> int:
    """Returns what the sides of what the model learns from are multiples of, in pixels."""
    folder = find_known_configs(model.choose_start())
    return learner.size_multiple if folder is None else learner.find_size_multiple(folder)


def takes_buckets(settings: TrainingSettings, model: Model) -> bool:
    """Tells whether sizes of several proportions are trained; a resolution is diffusers' square where that is known."""
    return settings.buckets if settings.buckets is not None else settings.resolution is None or model.is_video


def choose_size(settings: TrainingSettings, model: Model, *, ask_multiple: Callable[[], int]) -> Shape:
    """Returns the size of the settings' resolution and frames, where they are asked for, or the model's default.

    It is what `train` makes of pictures with the proportions of that default: a square only where squares are learnt.
    `ask_multiple()` returns what sides are multiples of, and is asked where that matters.
    """
    shape, side = model.default_shape, settings.resolution
    if side is None and not takes_buckets(settings, model):
        side = round(math.sqrt(shape.width * shape.height))
    if side is not None and takes_buckets(settings, model):
        bucket = choose_bucket(shape.width, shape.height, model.shapes, multiple=ask_multiple(), area=side**2)
        shape = replace(shape, width=bucket.width, height=bucket.height)
    elif side is not None:
        shape = replace(shape, width=side, height=side)
    return shape if settings.frames is None else replace(shape, frames=settings.frames)


def find_size_problem(shape: Shape, model: Model, *, multiple: int) -> Message | None:
    """Returns why the model cannot learn from this size, None if it can; sides are multiples of `multiple`."""
    for side in (shape.width, shape.height):
        if side % multiple or not SMALLEST <= side <= LARGEST:
            near = min(max(round(side / multiple), -(-SMALLEST // multiple)), LARGEST // multiple) * multiple
            return english(
                f"{shape}: sides are multiples of {multiple} pixels from {SMALLEST} to {LARGEST}, such as {near}"
            )
    if shape.frames > 1 and not model.is_video:
        return english(f"{shape} has frames, and {model.id} makes pictures; leave them out")
    if shape.frames % 4 != 1:
        return english(f"{shape}: {shape.frames} frames are not 4n + 1, such as {shape.frames // 4 * 4 + 1}")
    return None
